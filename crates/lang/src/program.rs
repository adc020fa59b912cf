//! The program form: what the front end hands to the code generator and to the interpreter.
//!
//! Everything is resolved: names are indices, every expression carries its type, implicit conversions are explicit
//! [`ExpressionKind::Cast`]s, compound assignments and increments are explicit nodes. Nothing here knows a process.
//!
//! Integer semantics: a value of an integer type is held in 64 bits, sign- or zero-extended from its width according to
//! its type; every operation yields a value normalised to its result type. Arithmetic wraps. Shifts use the low 6 bits
//! (5 for 32-bit types) of the count. Division and remainder by zero are the run-time fault "divide by zero";
//! `MIN / -1` yields `MIN`, `MIN % -1` yields 0.

use crate::source::Span;

/// Index of a variable within its scope's list in [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VariableId(pub u32);

/// Index into [`Program::aggregations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AggregationId(pub u32);

/// A compiled D program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    pub clauses: Vec<Clause>,
    pub globals: Vec<Variable>,
    pub thread_locals: Vec<Variable>,
    pub clause_locals: Vec<Variable>,
    pub aggregations: Vec<Aggregation>,
    /// `#pragma D option name[=value]`, in order of appearance.
    pub pragmas: Vec<Pragma>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pragma {
    pub name: String,
    pub value: Option<String>,
    pub span: Span,
}

/// One clause: its probes, its condition, what it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    pub probes: Vec<ProbeDescription>,
    /// Evaluated first; zero ends the clause.
    pub predicate: Option<Expression>,
    pub statements: Vec<Statement>,
    pub span: Span,
}

impl Clause {
    /// Whether firing this clause writes a record: it has a data-recording action, or has no statement at all (then a
    /// bare record makes the consumer print the probe's columns).
    pub fn records(&self) -> bool {
        self.statements.is_empty() || self.statements.iter().any(|s| matches!(s, Statement::Record(_)))
    }
}

/// `provider:module:function:name` with globs; an empty field matches all. Macro arguments are already replaced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbeDescription {
    pub provider: String,
    pub module: String,
    pub function: String,
    pub name: String,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// As written, without `self->` or `this->`.
    pub name: String,
    /// The type of the value (of an element, for an associative array).
    pub value_type: Type,
    /// The types of the keys of an associative array; `None` for a scalar.
    pub keys: Option<Vec<Type>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Aggregation {
    /// With its `@`; the nameless one is `@`.
    pub name: String,
    pub function: AggregatingFunction,
    pub keys: Vec<KeyType>,
}

/// An aggregating function with its constant parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AggregatingFunction {
    Count,
    Sum,
    Average,
    Minimum,
    Maximum,
    StandardDeviation,
    Quantize,
    /// Buckets [base, limit) by step.
    LinearQuantize { base: i32, limit: i32, step: u16 },
    LogLinearQuantize { factor: u16, low: u16, high: u16, steps: u16 },
}

impl AggregatingFunction {
    /// The parameters packed as DTrace packs them, for `np_lquantize` and `np_llquantize`: step << 48 | levels << 32 |
    /// base (as u32); factor << 48 | low << 32 | high << 16 | steps. 0 for the others.
    pub fn packed_parameters(self) -> u64 {
        match self {
            Self::LinearQuantize { base, step, .. } => {
                (u64::from(step) << 48) | (u64::from(self.levels()) << 32) | u64::from(base as u32)
            }
            Self::LogLinearQuantize { factor, low, high, steps } => {
                (u64::from(factor) << 48) | (u64::from(low) << 32) | (u64::from(high) << 16) | u64::from(steps)
            }
            _ => 0,
        }
    }

    /// Number of steps between base and limit of an `lquantize`; 0 for the others.
    pub fn levels(self) -> u16 {
        match self {
            Self::LinearQuantize { base, limit, step } => {
                let range = i64::from(limit) - i64::from(base);
                u16::try_from(range / i64::from(step)).unwrap_or(u16::MAX)
            }
            _ => 0,
        }
    }
}

/// The type of one element of an aggregation's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyType {
    Integer(IntegerType),
    String,
    /// `ustack(frames)`; frames 0: the option `ustackframes`.
    UserStack { frames: u32 },
    /// An address printed as a symbol (`ucaller` stays an integer; this is for `usym`, `umod`, `uaddr`, later).
    Symbol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntegerType {
    /// 1, 2, 4 or 8.
    pub bytes: u8,
    pub signed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// No value: an action used as a statement.
    Void,
    Integer(IntegerType),
    /// A D string: at most `strsize` bytes with its NUL.
    String,
    /// An address in the target; what it points to is for later (`None`: void).
    Pointer(Option<Box<Type>>),
    /// An address of bytes in scratch memory, as `copyin` gives it; constant size where known.
    Bytes { size: Option<u32> },
}

impl Type {
    pub const I64: Type = Type::Integer(IntegerType { bytes: 8, signed: true });
    pub const U64: Type = Type::Integer(IntegerType { bytes: 8, signed: false });
    pub const I32: Type = Type::Integer(IntegerType { bytes: 4, signed: true });
    pub const U32: Type = Type::Integer(IntegerType { bytes: 4, signed: false });
}

#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// Evaluated for its effects (assignments).
    Expression(Expression),
    /// `@a[keys] = f(value[, weight])`.
    Aggregate { aggregation: AggregationId, keys: Vec<KeyExpression>, value: Option<Expression>, weight: Option<Expression>, span: Span },
    /// Adds data to the clause's record.
    Record(RecordAction),
}

/// An element of an aggregation's key.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyExpression {
    Value(Expression),
    UserStack { frames: u32 },
}

/// An action that records. What each puts into the record is in [`crate::layout`].
#[derive(Clone, Debug, PartialEq)]
pub struct RecordAction {
    pub kind: RecordKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RecordKind {
    /// `trace(e)`.
    Trace(Expression),
    /// `printf(format, ...)`: the format is parsed and checked against the arguments.
    Printf { format: crate::format::Format, arguments: Vec<Expression> },
    /// `printa([format,] @a, ...)`: nothing but the request is recorded; the consumer prints what it has.
    Printa { format: Option<crate::format::Format>, aggregations: Vec<AggregationId> },
    /// `ustack([frames[, strsize]])`; frames 0: the option.
    UserStack { frames: u32 },
    /// `exit(status)`.
    Exit(Expression),
    /// `clear(@a)`, `trunc(@a[, n])`, `normalize(@a, n)`, `denormalize(@a)`: carried out by the consumer.
    Clear(AggregationId),
    Truncate { aggregation: AggregationId, count: Option<Expression> },
    Normalize { aggregation: AggregationId, factor: Expression },
    Denormalize(AggregationId),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    pub kind: ExpressionKind,
    pub value_type: Type,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExpressionKind {
    Integer(i64),
    String(String),
    Builtin(Builtin),
    /// `uregs[index]`; the index is an expression (usually a constant `R_...`).
    Register(Box<Expression>),
    Variable(Place),
    Unary { operator: UnaryOperator, operand: Box<Expression> },
    /// Both operands have the same type by now (but for shifts); comparisons yield `int` 0 or 1. Strings: comparisons
    /// only.
    Binary { operator: BinaryOperator, left: Box<Expression>, right: Box<Expression> },
    /// `&&`, `||`, `^^`: short-circuit but for `^^`; `int` 0 or 1.
    Logical { operator: LogicalOperator, left: Box<Expression>, right: Box<Expression> },
    Conditional { condition: Box<Expression>, then: Box<Expression>, otherwise: Box<Expression> },
    /// Integer to integer (truncate, then extend by the new type), pointer to and from integer, or `Bytes`/pointer to
    /// `String` (`stringof`: for `Bytes` the scratch bytes as they are, for a pointer or integer as `copyinstr`).
    Cast(Box<Expression>),
    /// Stores `value` (already of the place's type) and yields it.
    Assign { place: Place, value: Box<Expression> },
    /// `place op= value`: reads, computes in the promoted type, converts back, stores, yields the new value.
    AssignOperator { place: Place, operator: BinaryOperator, value: Box<Expression> },
    /// `++`/`--`: adds `delta` (pointer steps included); yields the new value, or the old one when `post`.
    Increment { place: Place, delta: i64, post: bool },
    /// `a, b`.
    Comma { first: Box<Expression>, second: Box<Expression> },
    Call { function: Function, arguments: Vec<Expression> },
    /// Reads the target's memory: an integer of the expression's type at an address.
    Load(Box<Expression>),
}

/// Something that can be assigned to.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    Scalar { scope: Scope, variable: VariableId },
    Element { scope: Scope, variable: VariableId, keys: Vec<Expression> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Global,
    ThreadLocal,
    ClauseLocal,
}

/// A variable that the tracer provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// `arg0` .. `arg9`: at an entry the function's integer arguments; at a return `arg0` is the offset of the exit and
    /// `arg1` the value returned. Type: int64_t.
    Argument(u8),
    Pid,
    Tid,
    Ppid,
    Uid,
    Gid,
    ExecName,
    Cpu,
    ProbeProvider,
    ProbeModule,
    ProbeFunction,
    ProbeName,
    Timestamp,
    VirtualTimestamp,
    WallTimestamp,
    UserCaller,
    /// The id of the enabled probe; the id of the probe.
    EnabledProbeId,
    ProbeId,
    /// `errno` is refused for now; kept out.
    /// `$target`.
    TargetPid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOperator {
    Negate,
    /// `~`
    Complement,
    /// `!`: int 0 or 1; of a string: whether it is empty.
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    Xor,
    ShiftLeft,
    /// Arithmetic for signed left operands, logical otherwise.
    ShiftRight,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogicalOperator {
    And,
    Or,
    Xor,
}

/// A subroutine that yields a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `copyin(address, size)` -> `Bytes`.
    CopyIn,
    /// `copyinstr(address[, size])` -> `String`.
    CopyInString,
    /// `strlen(string)` -> size_t.
    StringLength,
}
