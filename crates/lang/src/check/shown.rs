//! The types that `print()` shows, by the names that the text, or the program's source, gives them.
//!
//! ```text
//! typedef struct pair { ushort_t a; enum color c; } pair_t;
//!
//! print(*(pair_t *)arg0)      pair_t {  ushort_t a = 0x1  enum color c = RED  }
//! ```
//!
//! Everywhere else a typedef is the type that it stands for, and an enumeration of the text
//! is an `int`.

use std::collections::HashMap;

use super::Checker;
use crate::program::{Foreign, ForeignKind, IntegerType, Scope, Type, VariableId, size_of};
use crate::source::Span;
use crate::syntax::{BaseType, Derived, LocalScope, Node, NodeKind, PrefixOperator, TypeName};
use crate::types;

/// For types of the text whose form for `print()` differs from the type itself: that form.
#[derive(Default)]
pub(super) struct Shown {
    /// Typedefs of enumerations.
    pub typedefs: HashMap<String, Type>,
    /// Enumerations by their tags; "" is the last enumeration without a tag.
    enumerations: HashMap<String, Type>,
    /// The enumerations by their enumerators.
    enumerators: HashMap<String, Type>,
    /// The types of declared variables.
    pub variables: HashMap<(Scope, VariableId), Type>,
}

impl Checker {
    /// The shown type at the beginning of a declaration or a cast; `resolved` is the type itself.
    pub(super) fn shown_base(&self, base: &BaseType, resolved: &Type) -> Type {
        match base {
            BaseType::Integer(integer) => Foreign::named(in_c(*integer), resolved.clone()),
            BaseType::Named(name) => {
                let of = self.types.shown.typedefs.get(name).unwrap_or(resolved);
                let name = name.rsplit('`').next().unwrap_or(name);
                Foreign::named(name, of.clone())
            }
            BaseType::Enumeration { tag, .. } => match resolved {
                Type::Integer(_) => self.types.shown.enumerations.get(tag).unwrap_or(resolved).clone(),
                _ => resolved.clone(),
            },
            BaseType::Void
            | BaseType::Floating(_)
            | BaseType::Complex(_)
            | BaseType::String
            | BaseType::Aggregate { .. } => resolved.clone(),
        }
    }

    /// The shown type that stars and brackets make of `base`; `resolved` is the type itself.
    pub(super) fn shown_derived(&mut self, base: Type, derived: &[Derived], resolved: &Type) -> Type {
        if let [rest @ .., Derived::Function, Derived::Pointer] = derived {
            let result = self.shown_derived(base, rest, &Type::Void);
            return Foreign::named(format!("{} (*)()", types::shown_name(&result)), resolved.clone());
        }
        // The same steps have made the type itself, and have reported their errors then.
        self.derive_member(base, derived, Span::default())
            .unwrap_or_else(|_| resolved.clone())
    }

    /// The shown type of a type name; `resolved` is the type itself.
    fn shown_type_name(&mut self, name: &TypeName, resolved: &Type) -> Type {
        let Ok(base) = self.base(&name.base, name.span) else {
            return resolved.clone();
        };
        let base = self.shown_base(&name.base, &base);
        self.shown_derived(base, &name.derived, resolved)
    }

    /// Remembers an enumeration of the text, with its enumerators, for `print()`. No value has this type.
    pub(super) fn show_enumeration(&mut self, tag: &str, integer: IntegerType, names: Vec<(String, i64)>) {
        let name = if tag.is_empty() {
            "enum".to_owned()
        } else {
            format!("enum {tag}")
        };
        let enumerators: Vec<String> = names.iter().map(|(name, _)| name.clone()).collect();
        let of = Type::Foreign(Foreign::new(name, ForeignKind::Enumeration { integer, names }));
        for enumerator in enumerators {
            self.types.shown.enumerators.insert(enumerator, of.clone());
        }
        self.types.shown.enumerations.insert(tag.to_owned(), of);
    }

    /// The shown type of an expression; `resolved` is the type itself.
    pub(super) fn shown_type(&mut self, node: &Node, resolved: &Type) -> Type {
        let found = self.shown_node(node, resolved);
        // If no other form was found, or the form has another size, the type itself is shown.
        found
            .filter(|found| size_of(found) == size_of(resolved))
            .unwrap_or_else(|| resolved.clone())
    }

    /// The shown type of a pointer's target; `resolved` is the type itself.
    pub(super) fn shown_pointed(&mut self, pointer: &Node, resolved: &Type) -> Type {
        let of = Type::Pointer(Some(Box::new(resolved.clone())));
        match self.shown_node(pointer, &of) {
            Some(Type::Pointer(Some(to))) if size_of(&to) == size_of(resolved) => *to,
            _ => resolved.clone(),
        }
    }

    fn shown_node(&mut self, node: &Node, resolved: &Type) -> Option<Type> {
        match &node.kind {
            NodeKind::Cast { to, .. } => Some(self.shown_type_name(to, resolved)),
            NodeKind::Integer(_) => match resolved {
                Type::Integer(integer) => Some(Foreign::named(in_c(*integer), resolved.clone())),
                _ => None,
            },
            NodeKind::Member { base, name, arrow } => {
                let whole = match arrow {
                    true => self.expression(base).ok()?.value_type,
                    false => self.operand(base).ok()?.value_type,
                };
                let structure = match whole {
                    Type::Pointer(Some(to)) if *arrow => *to,
                    whole => whole,
                };
                match structure {
                    Type::Structure(structure) => structure.member(name)?.shown,
                    _ => None,
                }
            }
            NodeKind::Unary {
                operator: PrefixOperator::Dereference,
                operand,
            } => {
                let pointer = self.expression(operand).ok()?.value_type;
                match self.shown_node(operand, &pointer)? {
                    Type::Pointer(to) => to.map(|to| *to),
                    _ => None,
                }
            }
            NodeKind::Identifier(name) => match self.variables.known(Scope::Global, name) {
                Some(known) => self.types.shown.variables.get(&(Scope::Global, known.id)).cloned(),
                None => self
                    .types
                    .shown
                    .enumerators
                    .get(name)
                    .cloned()
                    .or_else(|| of_builtin(name).map(|of| Foreign::named(of, resolved.clone()))),
            },
            NodeKind::Local { scope, name } => {
                let scope = match scope {
                    LocalScope::Thread => Scope::ThreadLocal,
                    LocalScope::Clause => Scope::ClauseLocal,
                };
                let known = self.variables.known(scope, name)?;
                self.types.shown.variables.get(&(scope, known.id)).cloned()
            }
            _ => None,
        }
    }
}

/// The name of an integer type in C.
const fn in_c(of: IntegerType) -> &'static str {
    match (of.bytes, of.signed) {
        (1, true) => "char",
        (1, false) => "unsigned char",
        (2, true) => "short",
        (2, false) => "unsigned short",
        (4, true) => "int",
        (4, false) => "unsigned int",
        (_, true) => "long",
        (_, false) => "unsigned long",
    }
}

/// DTrace's name for the type of a built-in variable, if it differs from the name of the integer type.
fn of_builtin(name: &str) -> Option<&'static str> {
    Some(match name {
        "pid" | "ppid" => "pid_t",
        "tid" => "id_t",
        "uid" => "uid_t",
        "gid" => "gid_t",
        "cpu" => "processorid_t",
        "id" | "epid" => "uint_t",
        _ => return None,
    })
}
