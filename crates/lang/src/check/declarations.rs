//! Declarations: variables, `typedef`, `enum`.

use super::{Checked, Checker, attributes, internet, names};
use crate::diagnostic::Diagnostic;
use crate::lower::constant;
use crate::lower::refusals::unsupported;
use crate::parser::MAXIMUM_NESTING;
use crate::program::{Foreign, ForeignKind, IntegerType, Packing, Scope, Type, alignment_of, size_of};
use crate::source::Span;
use crate::syntax::{BaseType, Declaration, Derived, Node, TypeName};
use crate::types;

impl Checker {
    pub(super) fn declaration(&mut self, declaration: &Declaration) -> Checked<()> {
        let scope = match declaration.storage {
            None => Scope::Global,
            Some(("self", _)) => Scope::ThreadLocal,
            Some(("this", _)) => Scope::ClauseLocal,
            Some(("typedef", _)) => return self.typedef(declaration),
            Some(("extern", _)) => return self.external(declaration),
            Some((word, span)) => {
                return Err(Diagnostic::new(
                    "D_DECL_BADCLASS",
                    span,
                    format!("the storage class {word} is not supported in D"),
                ));
            }
        };
        let base = self.base(&declaration.base, declaration.span)?;
        let declares = match &declaration.base {
            BaseType::Enumeration { .. } => true,
            BaseType::Aggregate { tag, .. } => !tag.is_empty(),
            _ => false,
        };
        if declaration.declarators.is_empty() && !declares {
            return Err(useless(declaration.span));
        }
        if self.is_function_type(&declaration.base) && scope == Scope::Global {
            return Ok(());
        }
        let shown = self.shown_base(&declaration.base, &base);
        for declarator in &declaration.declarators {
            self.declare(scope, (&base, &shown), declarator)?;
        }
        Ok(())
    }

    /// `extern type name;`: declares a variable of the program, so that the name needs neither a
    /// backquote nor debug information. A function may be declared, too; D cannot call it.
    fn external(&mut self, declaration: &Declaration) -> Checked<()> {
        let base = self.base(&declaration.base, declaration.span)?;
        if declaration.declarators.is_empty() {
            return Err(useless(declaration.span));
        }
        if self.is_function_type(&declaration.base) {
            return Ok(());
        }
        for declarator in &declaration.declarators {
            let (name, span) = (&declarator.name, declarator.span);
            let value_type = match declarator.derived.split_last() {
                Some((Derived::Function, rest)) => {
                    self.derive(base.clone(), rest, span)?;
                    continue;
                }
                // The array has as many elements as the program's variable.
                Some((Derived::ArrayOfUnknownSize, rest)) => Type::Array {
                    of: Box::new(self.derive(base.clone(), rest, span)?),
                    count: 0,
                },
                Some((Derived::Keys(_), _)) => {
                    let message = format!("an associative array cannot be extern: {name}");
                    return Err(Diagnostic::new("D_DECL_BADCLASS", span, message));
                }
                _ => self.derive(base.clone(), &declarator.derived, span)?,
            };
            match value_type {
                Type::Void => {
                    let message = format!("cannot declare void object: {name}");
                    return Err(Diagnostic::new("D_DECL_VOIDOBJ", span, message));
                }
                Type::String => {
                    let message = format!("an extern variable must have a type of C: {name}");
                    return Err(
                        Diagnostic::new("D_DECL_DYNOBJ", span, message).with_help("char *, or an array of char")
                    );
                }
                _ => {}
            }
            let before = self.scope.externals.get(name).filter(|before| **before == value_type);
            if before.is_none() {
                self.check_new_name(name, span)?;
            }
            self.scope.externals.insert(name.clone(), value_type);
        }
        Ok(())
    }

    /// Refuses a global name that D itself uses.
    pub(super) fn check_new_name(&self, name: &str, span: Span) -> Checked<()> {
        let taken = names::is_variable(name)
            || self.is_function(name)
            || names::register(name).is_some()
            || self.scope.inlines.contains_key(name)
            || self.scope.inline_translations.contains_key(name)
            || self.scope.inline_functions.contains_key(name)
            || names::signal(name).is_some()
            || names::fault(name).is_some()
            || self.scope.enumerators.contains_key(name)
            || self.variables.known(Scope::Global, name).is_some()
            || self.scope.externals.contains_key(name)
            || matches!(name, "NULL" | "uregs");
        if taken { Err(redeclared(name, span)) } else { Ok(()) }
    }

    fn typedef(&mut self, declaration: &Declaration) -> Checked<()> {
        let base = self.base(&declaration.base, declaration.span)?;
        if declaration.declarators.is_empty() {
            return Err(useless(declaration.span));
        }
        for declarator in &declaration.declarators {
            let name = &declarator.name;
            let defined = match declarator.derived.split_last() {
                // A function type is only useful as the target of a pointer.
                Some((Derived::Function, rest)) => {
                    self.derive(base.clone(), rest, declarator.span)?;
                    self.types.functions.insert(name.clone());
                    Type::Void
                }
                _ => self.derive_member(base.clone(), &declarator.derived, declarator.span)?,
            };
            let defined = self.attributed(defined, &declarator.attributes, declarator.span)?;
            let mut aligned = self.aligned(&declarator.attributes)?;
            if declarator.attributes.vector.is_some() {
                aligned = aligned.max(size_of(&defined).unwrap_or(0));
            }
            if aligned == 0 {
                aligned = self.alignment(&declaration.base, &declarator.derived, &defined);
            }
            if aligned != alignment_of(&defined) {
                self.types.alignments.insert(name.clone(), aligned);
            }
            let known = || types::named(name).filter(|_| types::customary(name).is_none());
            let before = self.types.named.get(name).cloned().or_else(known);
            if before.is_some_and(|before| before != defined) {
                return Err(redeclared(name, declarator.span));
            }
            if declarator.derived.is_empty() && matches!(declaration.base, BaseType::Enumeration { .. }) {
                let shown = self.shown_base(&declaration.base, &defined);
                self.types.shown.typedefs.insert(name.clone(), shown);
            }
            let defined = match defined {
                Type::Structure(structure) => Type::Structure(structure.called(name)),
                other => other,
            };
            self.types.named.insert(name.clone(), defined);
        }
        Ok(())
    }

    /// The type that a type name names.
    pub(super) fn type_of(&mut self, name: &TypeName) -> Checked<Type> {
        let base = self.base(&name.base, name.span)?;
        self.derive(base, &name.derived, name.span)
    }

    pub(super) fn base(&mut self, base: &BaseType, span: Span) -> Checked<Type> {
        match base {
            BaseType::Void => Ok(Type::Void),
            BaseType::Integer(integer) => Ok(Type::Integer(*integer)),
            BaseType::String => Ok(Type::String),
            BaseType::Floating(bytes) => {
                let name = match bytes {
                    4 => "float",
                    8 => "double",
                    _ => "long double",
                };
                let kind = ForeignKind::Floating(*bytes);
                Ok(Type::Foreign(Foreign::new(name.to_owned(), kind)))
            }
            BaseType::Complex(part) => Ok(Type::Array {
                of: Box::new(self.base(part, span)?),
                count: 2,
            }),
            BaseType::Aggregate {
                keyword,
                tag,
                members,
                attributes,
                pack,
            } => {
                let packing = Packing {
                    packed: attributes.packed,
                    pack: pack.map(u64::from),
                    aligned: self.aligned(attributes)?,
                };
                self.structure((keyword, tag), members.as_deref(), packing, span)
                    .map(Type::Structure)
            }
            BaseType::Named(name) => match self.types.named.get(name).cloned().or_else(|| types::named(name)) {
                Some(found) if !self.types.named.contains_key(name) && types::customary(name).is_some() => {
                    Ok(self.foreign_type(name, span).unwrap_or(found))
                }
                Some(found) => Ok(found),
                None if name == internet::ADDRESS_NAME => self
                    .structure(("struct", "in6_addr"), None, Packing::default(), span)
                    .map(Type::Structure),
                None => self.foreign_type(name, span),
            },
            BaseType::Enumeration {
                tag,
                enumerators,
                attributes,
                included,
            } => {
                if enumerators.is_empty() && !self.later.defines(&format!("enum {tag}")) {
                    return Ok(self.foreign_enumeration(tag));
                }
                if !enumerators.is_empty() {
                    let (names, range) = self.enumerators(enumerators, *included)?;
                    let mut integer = integer_of(range, attributes.packed);
                    if let Some((mode, place)) = &attributes.mode
                        && let Type::Integer(of) = attributes::in_mode(&Type::Integer(integer), mode, *place)?
                    {
                        integer = of;
                    }
                    if !tag.is_empty() && Type::Integer(integer) != Type::I32 {
                        self.types.enumerations.insert(tag.clone(), integer);
                    }
                    self.show_enumeration(tag, integer, names);
                    return Ok(Type::Integer(integer));
                }
                let known = self.types.enumerations.get(tag).copied();
                Ok(known.map_or(Type::I32, Type::Integer))
            }
        }
    }

    /// The names with their values, and the range of the values.
    fn enumerators(
        &mut self,
        enumerators: &[(String, Option<Node>, Span)],
        wide: bool,
    ) -> Checked<(Vec<(String, i64)>, Range)> {
        let (mut next, mut least, mut most) = (0_i128, 0, 0);
        let mut names = Vec::with_capacity(enumerators.len());
        for (name, value, span) in enumerators {
            if let Some(node) = value {
                let Some(value) = constant::wide_value(&self.expression(node)?) else {
                    let message = format!("enumerator '{name}' must be assigned to an integral constant expression");
                    return Err(Diagnostic::new("D_DECL_ENCONST", node.span, message));
                };
                next = value;
            }
            let fits = wide || i32::try_from(next).is_ok();
            // A value of more than 63 bits is kept as the signed number with the same bit pattern.
            let value = i64::try_from(next)
                .ok()
                .or_else(|| u64::try_from(next).ok().map(|bits| bits as i64));
            let Some(value) = value.filter(|_| fits) else {
                let message = format!("enumerator '{name}' value overflows INT_MAX");
                return Err(Diagnostic::new("D_DECL_ENOFLOW", *span, message));
            };
            self.check_new_name(name, *span)?;
            self.scope.enumerators.insert(name.clone(), next);
            names.push((name.clone(), value));
            (least, most) = (least.min(next), most.max(next));
            next += 1;
        }
        Ok((names, (least, most)))
    }

    /// Whether the base type is a typedef of a function type.
    fn is_function_type(&self, base: &BaseType) -> bool {
        matches!(base, BaseType::Named(name) if self.types.functions.contains(name))
    }

    /// As [`Checker::derive`], for a member or a typedef. These may be arrays without elements.
    pub(super) fn derive_member(&mut self, base: Type, derived: &[Derived], span: Span) -> Checked<Type> {
        let without = match derived.split_last() {
            Some((Derived::ArrayOfUnknownSize, rest)) => Some(rest),
            Some((Derived::Array(count), rest)) => {
                let count = self.expression(count).ok();
                let is_zero = count.is_some_and(|count| constant::wide_value(&count) == Some(0));
                is_zero.then_some(rest)
            }
            _ => None,
        };
        match without {
            Some(rest) => Ok(Type::Array {
                of: Box::new(self.derive(base, rest, span)?),
                count: 0,
            }),
            None => self.derive(base, derived, span),
        }
    }

    /// The type that stars and brackets make of the base type.
    pub(super) fn derive(&mut self, base: Type, derived: &[Derived], span: Span) -> Checked<Type> {
        let mut result = base;
        let mut steps = derived.iter().peekable();
        while let Some(step) = steps.next() {
            result = match step {
                // D never calls a function through a pointer, so this is a pointer to anything.
                Derived::Function if steps.next_if(|next| matches!(next, Derived::Pointer)).is_some() => {
                    Type::Pointer(None)
                }
                Derived::Pointer if pointer_depth(&result) >= usize::from(MAXIMUM_NESTING) => {
                    return Err(Diagnostic::new(
                        "N_NESTING",
                        span,
                        format!("a pointer to a pointer more than {MAXIMUM_NESTING} times"),
                    ));
                }
                Derived::Pointer if result == Type::Void => Type::Pointer(None),
                Derived::Pointer => Type::Pointer(Some(Box::new(result))),
                Derived::Array(dimension) => self.array(result, dimension, span)?,
                Derived::ArrayOfUnknownSize => {
                    return Err(Diagnostic::new(
                        "D_DECL_ARRNULL",
                        span,
                        "an array needs a dimension here",
                    ));
                }
                Derived::Keys(_) => {
                    return Err(Diagnostic::new(
                        "D_DECL_DYNOBJ",
                        span,
                        "an associative array cannot be part of a type",
                    ));
                }
                Derived::Function => return Err(unsupported("N_FUNCTION_TYPE", "a function type", span)),
            };
        }
        Ok(result)
    }
}

/// The least and the greatest value.
type Range = (i128, i128);

/// The type that holds the values of an enumeration: an `int`, unless a value needs more bits or
/// the enumeration is packed.
fn integer_of((least, most): Range, packed: bool) -> IntegerType {
    let holds = |of: &IntegerType| {
        let bits = 8 * u32::from(of.bytes) - u32::from(of.signed);
        most < 1 << bits && least >= if of.signed { -(1 << bits) } else { 0 }
    };
    let sizes: &[u8] = if packed { &[1, 2, 4, 8] } else { &[4, 8] };
    let of = |signed| move |bytes: &u8| IntegerType { bytes: *bytes, signed };
    // D's enumerators are `int`s where all values fit. For a packed enumeration gcc prefers an
    // unsigned type.
    let mut candidates = sizes.iter().flat_map(|bytes| [of(!packed)(bytes), of(packed)(bytes)]);
    candidates.find(holds).unwrap_or(IntegerType { bytes: 8, signed: true })
}

fn pointer_depth(of: &Type) -> usize {
    let mut depth = 0;
    let mut inner = of;
    while let Type::Pointer(Some(to)) = inner {
        depth += 1;
        inner = to;
    }
    depth
}

fn useless(span: Span) -> Diagnostic {
    Diagnostic::new("D_DECL_USELESS", span, "the declaration declares nothing")
}

pub(super) fn redeclared(name: &str, span: Span) -> Diagnostic {
    Diagnostic::new("D_DECL_IDRED", span, format!("identifier redeclared: {name}"))
}

/// A value of one of the program's enumerations becomes an integer; other types are unchanged.
pub(super) fn as_integer(of: &Type) -> Type {
    match of {
        Type::Foreign(foreign) => foreign.integer().map_or_else(|| of.clone(), Type::Integer),
        _ => of.clone(),
    }
}
