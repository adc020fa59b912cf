//! The syntax tree: the text before anything has a type.
//!
//! Names are still text. Macro arguments are already replaced: as in DTrace the lexer replaces them, so
//! `$1` can stand for an identifier or a number. [`crate::parser::MAXIMUM_NESTING`] bounds the depth of
//! every expression, so code that walks a tree may recurse.

use crate::program::{BinaryOperator, DerivedProbe, IntegerType, LogicalOperator, ProbeDescription};
use crate::source::Span;
use std::rc::Rc;

/// A program's top-level item.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Probes, predicate, statements.
    Clause(Clause),
    /// `int x;`, `typedef`, `struct s { ... };`
    Declaration(Declaration),
    /// `inline type name = expression;`
    Inline(Inline),
    /// `translator output < input > { ... };`
    Translator(Translator),
    /// A header's declaration that D cannot use.
    PassedOver,
    /// `provider name { probes };`, which a program that traces may not contain.
    Provider(ProviderDefinition),
}

/// `provider name { probe ...; };`
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderDefinition {
    /// The name of the provider.
    pub name: String,
    /// Its probes, in order.
    pub probes: Vec<DeclaredProbe>,
    /// The place of the definition.
    pub span: Span,
}

/// `probe name(parameters);`
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredProbe {
    /// The name as written, with `__`.
    pub name: String,
    /// The place of each parameter.
    pub arguments: Vec<Span>,
    pub span: Span,
}

/// A clause as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    /// The probe descriptions, at least one.
    pub probes: Vec<ProbeDescription>,
    /// The predicate between the slashes.
    pub predicate: Option<Node>,
    /// The statements between the braces; empty also if there are no braces.
    pub body: Vec<Statement>,
    /// From the first probe to the closing brace.
    pub span: Span,
    /// The derived probe that `probes` are the places of.
    pub derived: Option<Rc<DerivedPlaces>>,
}

/// Where a derived probe fires, and with what ([`crate::derived`]).
#[derive(Clone, Debug, PartialEq)]
pub struct DerivedPlaces {
    pub probe: DerivedProbe,
    /// What its arguments are there.
    pub arguments: Vec<(DerivedArgument, Node)>,
}

/// An argument of a derived probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DerivedArgument {
    /// `arg0`
    Word(u8),
    /// `args[0]`
    Whole(u8),
    /// `args[0]->member`
    Member(u8, String),
}

/// A statement of a clause.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `expression;`
    Expression(Node),
    /// `if (condition) ... else ...`
    If {
        condition: Node,
        /// Executed if the condition is not zero.
        then: Vec<Statement>,
        /// Executed if the condition is zero.
        otherwise: Vec<Statement>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub kind: NodeKind,
    pub span: Span,
    /// The number of levels of nesting, 1 for a leaf.
    pub depth: u16,
}

/// The kinds of expression.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields are the operands, in order")]
pub enum NodeKind {
    /// A name; a name with a backquote is a symbol of a module.
    Identifier(String),
    /// `self->name` or `this->name`.
    Local {
        scope: LocalScope,
        name: String,
    },
    /// `@name`, with the `@`.
    Aggregation(String),
    Integer(IntegerLiteral),
    String(Vec<u8>),
    /// `function(arguments)`.
    Call {
        function: Box<Node>,
        arguments: Vec<Node>,
    },
    /// `base[indices]`.
    Index {
        base: Box<Node>,
        indices: Vec<Node>,
    },
    /// `base.name`, `base->name`.
    Member {
        base: Box<Node>,
        name: String,
        arrow: bool,
    },
    Unary {
        operator: PrefixOperator,
        operand: Box<Node>,
    },
    /// `++`, `--`.
    Increment {
        operand: Box<Node>,
        delta: i64,
        post: bool,
    },
    Binary {
        operator: BinaryOperator,
        left: Box<Node>,
        right: Box<Node>,
    },
    Logical {
        operator: LogicalOperator,
        left: Box<Node>,
        right: Box<Node>,
    },
    Conditional {
        condition: Box<Node>,
        then: Box<Node>,
        otherwise: Box<Node>,
    },
    /// `=`, or `operator=`.
    Assign {
        operator: Option<BinaryOperator>,
        left: Box<Node>,
        right: Box<Node>,
    },
    Comma {
        first: Box<Node>,
        second: Box<Node>,
    },
    Cast {
        to: TypeName,
        operand: Box<Node>,
    },
    SizeofType(TypeName),
    /// `__alignof__(type)`.
    Alignof(TypeName),
    Sizeof(Box<Node>),
    Stringof(Box<Node>),
    /// `offsetof(type, member)`.
    Offsetof(TypeName, String),
    /// `xlate <type>(expression)`.
    Translate {
        to: TypeName,
        operand: Box<Node>,
    },
}

impl Node {
    /// A node; its depth follows from its operands.
    #[must_use]
    pub fn new(kind: NodeKind, span: Span) -> Node {
        let below = match &kind {
            NodeKind::Identifier(_)
            | NodeKind::Local { .. }
            | NodeKind::Aggregation(_)
            | NodeKind::Integer(_)
            | NodeKind::String(_)
            | NodeKind::SizeofType(_)
            | NodeKind::Alignof(_)
            | NodeKind::Offsetof(..) => 0,
            NodeKind::Call {
                function: one,
                arguments: many,
            }
            | NodeKind::Index {
                base: one,
                indices: many,
            } => many.iter().map(|n| n.depth).max().unwrap_or(0).max(one.depth),
            NodeKind::Member { base: one, .. }
            | NodeKind::Unary { operand: one, .. }
            | NodeKind::Increment { operand: one, .. }
            | NodeKind::Cast { operand: one, .. }
            | NodeKind::Sizeof(one)
            | NodeKind::Stringof(one)
            | NodeKind::Translate { operand: one, .. } => one.depth,
            NodeKind::Binary { left, right, .. }
            | NodeKind::Logical { left, right, .. }
            | NodeKind::Assign { left, right, .. }
            | NodeKind::Comma {
                first: left,
                second: right,
            } => left.depth.max(right.depth),
            NodeKind::Conditional {
                condition,
                then,
                otherwise,
            } => condition.depth.max(then.depth).max(otherwise.depth),
        };
        Node {
            kind,
            span,
            depth: below.saturating_add(1),
        }
    }
}

/// `self->` or `this->`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalScope {
    /// `self->`: thread-local.
    Thread,
    /// `this->`: clause-local.
    Clause,
}

/// Operators before an operand, without `++` and `--`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the operators")]
pub enum PrefixOperator {
    Plus,
    Minus,
    Complement,
    Not,
    Dereference,
    AddressOf,
}

/// An integer constant. As in C, its value and its spelling decide its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegerLiteral {
    /// The bits of the value.
    pub value: u64,
    /// Whether the constant is written in decimal. A decimal constant becomes unsigned only by its suffix.
    pub decimal: bool,
    /// Suffix `u`.
    pub unsigned: bool,
    /// Suffix `l` or `ll`.
    pub long: bool,
    /// Whether the value is negative. Only a macro argument can be negative (`$1` may be `-5`).
    pub negative: bool,
}

impl IntegerLiteral {
    /// A plain decimal number.
    #[must_use]
    pub fn decimal(value: i64) -> IntegerLiteral {
        IntegerLiteral {
            value: value.unsigned_abs(),
            decimal: true,
            unsigned: false,
            long: false,
            negative: value < 0,
        }
    }
}

/// A declaration: `storage base declarator, ...;`
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    /// `self`, `this`, `typedef`, ...
    pub storage: Option<(&'static str, Span)>,
    /// The type that all declarators share.
    pub base: BaseType,
    /// The declarators; none in `struct s { ... };`.
    pub declarators: Vec<Declarator>,
    pub span: Span,
}

/// `inline type name = expression;`
#[derive(Clone, Debug, PartialEq)]
pub struct Inline {
    /// The type before the declarator.
    pub base: BaseType,
    /// The name, with pointers and keys.
    pub declarator: Declarator,
    /// The expression that the name stands for.
    pub value: Node,
    pub span: Span,
}

/// `translator output < input name > { member = value; ... };`
#[derive(Clone, Debug, PartialEq)]
pub struct Translator {
    pub output: TypeName,
    /// The input type, and its name in the expressions.
    pub input: TypeName,
    /// Members with their values.
    pub members: Vec<(String, Node, Span)>,
    pub span: Span,
}

/// The part of a declaration that names something.
#[derive(Clone, Debug, PartialEq)]
pub struct Declarator {
    /// The declared name; empty in a type name.
    pub name: String,
    /// The steps from the base type to the declared type, from the base outwards.
    pub derived: Vec<Derived>,
    /// GNU C's attributes around the declarator and before the type.
    pub attributes: Attributes,
    /// Where the name is.
    pub span: Span,
}

/// The `__attribute__((...))` and `_Alignas` of a type, or of a declared name, that change the
/// layout. D ignores all other attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes {
    /// `packed`.
    pub packed: bool,
    /// An entry for each `aligned(n)`; `None`: `aligned` without a number.
    pub aligned: Vec<Option<Node>>,
    /// `mode(DI)`: changes the size.
    pub mode: Option<(String, Span)>,
    /// `vector_size(n)`.
    pub vector: Option<Box<Node>>,
}

impl Attributes {
    /// Adds the attributes of another list.
    pub fn add(&mut self, other: &Attributes) {
        self.packed |= other.packed;
        self.aligned.extend(other.aligned.iter().cloned());
        self.mode = self.mode.take().or_else(|| other.mode.clone());
        self.vector = self.vector.take().or_else(|| other.vector.clone());
    }
}

/// One step from a type to a type derived from it.
#[derive(Clone, Debug, PartialEq)]
pub enum Derived {
    /// `*`
    Pointer,
    /// `[]`
    ArrayOfUnknownSize,
    /// `[10]`
    Array(Box<Node>),
    /// `[int, string]`
    Keys(Vec<TypeName>),
    /// `()`
    Function,
}

/// A type without a declared name: of a cast, a key, a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeName {
    /// The type that the type name begins with.
    pub base: BaseType,
    /// The steps from the base type, from the base outwards.
    pub derived: Vec<Derived>,
    /// For a key of an inline: its name in the inline's value. Otherwise empty.
    pub name: String,
    pub span: Span,
}

/// Members of a structure that share their base type.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberDeclaration {
    /// The type before the declarators.
    pub base: BaseType,
    /// The declarators, each with the width of a bit-field; none for a structure or union without a name.
    pub declarators: Vec<(Declarator, Option<Node>)>,
    /// GNU C's attributes before a structure or union without a name.
    pub attributes: Attributes,
    pub span: Span,
}

/// A type that is not derived from another.
#[derive(Clone, Debug, PartialEq)]
pub enum BaseType {
    /// `void`
    Void,
    /// `int` and the other integer types.
    Integer(IntegerType),
    /// `float`, `double`: the size in bytes.
    Floating(u32),
    /// `_Complex` with another type.
    Complex(Box<BaseType>),
    /// `string`
    String,
    /// A typedef's name.
    Named(String),
    /// `struct tag`, `union tag`; defined or only named.
    Aggregate {
        /// `struct` or `union`.
        keyword: &'static str,
        tag: String,
        /// The members, if they are given.
        members: Option<Vec<MemberDeclaration>>,
        /// The attributes that change the layout.
        attributes: Attributes,
        /// `#pragma pack(n)`.
        pack: Option<u32>,
    },
    /// `enum tag`, with its enumerators if these are given.
    Enumeration {
        /// The tag, which may be empty.
        tag: String,
        /// The enumerators; none in `enum tag` alone.
        enumerators: Vec<(String, Option<Node>, Span)>,
        /// The attribute `packed` makes it as narrow as its values allow.
        attributes: Attributes,
        /// Whether the enumeration is in a header. As in gcc, it is then as wide as its values require.
        included: bool,
    },
}
