//! Variables: global, `self->`, `this->`; scalars and associative arrays; which of them can be
//! assigned.

use super::forward_uses::name_of;
use super::{Checked, Checker, names};
use crate::diagnostic::Diagnostic;
use crate::lower::constant;
use crate::lower::scalarize::is_by_member;
use crate::lower::{implicit_width, memory};
use crate::program::{Expression, Place, Scope, Type, Variable, VariableId};
use crate::source::Span;
use crate::spelling;
use crate::syntax::{LocalScope, Node, NodeKind};

/// An operand in the form of a variable or an element. Whether the variable exists is not known yet.
pub(super) struct Designator<'n> {
    pub(super) scope: Scope,
    pub(super) name: &'n str,
    /// The keys of an element of an associative array.
    pub(super) keys: Option<&'n [Node]>,
    /// The place of the variable, without its keys, in the text.
    pub(super) span: Span,
    /// The variable as written: `self->x`.
    pub(super) text: String,
}

/// The variable that a node names, if it has the form of a variable: `x`, `self->x[key]`.
pub(super) fn designator(node: &Node) -> Option<Designator<'_>> {
    let (base, keys) = match &node.kind {
        NodeKind::Index { base, indices } => (base.as_ref(), Some(indices.as_slice())),
        _ => (node, None),
    };
    let (scope, name) = match &base.kind {
        NodeKind::Identifier(name) => (Scope::Global, name),
        NodeKind::Local {
            scope: LocalScope::Thread,
            name,
        } => (Scope::ThreadLocal, name),
        NodeKind::Local {
            scope: LocalScope::Clause,
            name,
        } => (Scope::ClauseLocal, name),
        _ => return None,
    };
    Some(Designator {
        scope,
        name,
        keys,
        span: base.span,
        text: name_of(base)?,
    })
}

impl Checker {
    /// The place that a designator names and its type, if the variable exists.
    pub(super) fn place(&mut self, designator: &Designator<'_>) -> Checked<Option<(Place, Type)>> {
        let Some(known) = self.variables.known(designator.scope, designator.name) else {
            return Ok(None);
        };
        let Some(variable) = self.variables.get((designator.scope, known.id)) else {
            return Ok(None);
        };
        let (scope, id, value_type) = (designator.scope, known.id, variable.value_type.clone());
        match (variable.keys.clone(), designator.keys) {
            (None, None) => Ok(Some((Place::Scalar { scope, variable: id }, value_type))),
            (Some(types), Some(keys)) => {
                let (keys, _) = self.keys(&designator.text, keys, Some((&types, known.span)), designator.span)?;
                Ok(Some((
                    Place::Element {
                        scope,
                        variable: id,
                        keys,
                    },
                    value_type,
                )))
            }
            (Some(_), None) => Err(Diagnostic::new(
                "D_IDENT_BADREF",
                designator.span,
                format!("array '{}' may not be referenced as scalar", designator.text),
            )
            .with_related(known.span, "it was first used as an array here")),
            (None, Some(_)) => Err(Diagnostic::new(
                "D_IDENT_BADREF",
                designator.span,
                format!("scalar '{}' may not be referenced as array", designator.text),
            )
            .with_related(known.span, "it was first used as a scalar here")),
        }
    }

    /// The place that a designator names. If there is no such variable, it is made with this type.
    pub(super) fn place_or_new(&mut self, designator: &Designator<'_>, value_type: &Type) -> Checked<(Place, Type)> {
        self.check_assignable(designator)?;
        if let Some(found) = self.place(designator)? {
            return Ok(found);
        }
        let by_member = is_by_member(value_type, designator.keys.is_some(), designator.span)?;
        if !by_member && let Some(bytes) = memory::bytes_for(value_type, designator.span)? {
            return Ok((self.new_aggregate(designator, value_type, &bytes), bytes));
        }
        let value_type = match value_type {
            Type::Void => {
                if let Some(refusal) = self.clause_at_hand.without_value.take() {
                    return Err(refusal);
                }
                return Err(Diagnostic::new(
                    "D_OP_INCOMPAT",
                    designator.span,
                    format!("{} cannot be assigned: the value is void", designator.text),
                ));
            }
            Type::Bytes { .. } => Type::Pointer(None),
            other => other.clone(),
        };
        let scope = designator.scope;
        let (keys, types) = match designator.keys {
            None => (None, None),
            Some(_) if scope == Scope::ClauseLocal => {
                return Err(Diagnostic::new(
                    "D_ARR_LOCAL",
                    designator.span,
                    format!(
                        "local variables may not be used as associative arrays: {}",
                        designator.name
                    ),
                )
                .with_help("use self-> or a global array, and assign 0 to an element to free it"));
            }
            Some(keys) => {
                let (keys, types) = self.keys(&designator.text, keys, None, designator.span)?;
                (Some(keys), Some(types))
            }
        };
        let (id, value_type) = if by_member {
            let of = (&value_type, types);
            let id = self
                .variables
                .define_by_member(scope, designator.name, of, designator.span);
            (id, Type::Bytes { size: None })
        } else {
            self.new_variable(designator, value_type, types)
        };
        let place = match keys {
            None => Place::Scalar { scope, variable: id },
            Some(keys) => Place::Element {
                scope,
                variable: id,
                keys,
            },
        };
        Ok((place, value_type))
    }

    /// A new variable that holds a structure or an array, which has the form of `bytes`.
    fn new_aggregate(&mut self, designator: &Designator<'_>, of: &Type, bytes: &Type) -> Place {
        let variable = Variable {
            name: designator.name.to_owned(),
            value_type: bytes.clone(),
            keys: None,
        };
        let scope = designator.scope;
        let id = self.variables.define(scope, variable, designator.span);
        self.variables.hold((scope, id), of.clone());
        Place::Scalar { scope, variable: id }
    }

    /// Makes a variable or an associative array. Yields also the type in which its values are held
    /// ([`implicit_width`]).
    fn new_variable(
        &mut self,
        designator: &Designator<'_>,
        value_type: Type,
        keys: Option<Vec<Type>>,
    ) -> (VariableId, Type) {
        let held = implicit_width::held(&value_type);
        let variable = Variable {
            name: designator.name.to_owned(),
            value_type: held.as_ref().map_or(&value_type, |(held, _)| held).clone(),
            keys,
        };
        let id = self.variables.define(designator.scope, variable, designator.span);
        match held {
            Some((held, named)) => {
                self.variables.widen((designator.scope, id), named);
                (id, held)
            }
            None => (id, value_type),
        }
    }

    /// Whether a name is that of a function in the version of D that the text selects.
    pub(super) fn is_function(&self, name: &str) -> bool {
        names::callable(name).is_some() && !(self.settings.is_1_0 && names::came_with_1_1(name))
    }

    /// Refuses an assignment to a variable that the tracer provides.
    pub(super) fn check_assignable(&self, designator: &Designator<'_>) -> Checked<()> {
        let name = designator.name;
        if designator.scope != Scope::Global || self.variables.known(Scope::Global, name).is_some() {
            return Ok(());
        }
        if self.scope.floats.contains_key(name) {
            return Err(super::expressions::float_as_value(name, designator.span));
        }
        // As in DTrace, an inline of a constant is a constant, and cannot be assigned.
        let is_constant = self
            .scope
            .inlines
            .get(name)
            .is_some_and(|value| constant::wide_value(value).is_some());
        let what = if names::is_variable(name) || matches!(name, "uregs" | "args") {
            "a built-in variable"
        } else if is_constant
            || self.scope.enumerators.contains_key(name)
            || names::register(name).is_some()
            || names::signal(name).is_some()
        {
            let message = format!("operator = requires modifiable lvalue as an operand: {name} is a constant");
            return Err(Diagnostic::new("D_OP_LVAL", designator.span, message));
        } else if self.scope.inlines.contains_key(name)
            || self.scope.inline_functions.contains_key(name)
            || self.scope.bound.iter().any(|(parameter, _)| parameter == name)
            || name == "NULL"
        {
            "an inline"
        } else if self.is_function(name) {
            "a function"
        } else if name.contains('`') {
            "a symbol of the target"
        } else {
            return Ok(());
        };
        Err(Diagnostic::new(
            "D_OP_WRITE",
            designator.span,
            format!("operator = can only be applied to a writable variable: {name} is {what}"),
        ))
    }

    /// The value of a variable that must exist.
    pub(super) fn read(&mut self, designator: &Designator<'_>, span: Span) -> Checked<Expression> {
        if let Some((place, value_type)) = self.place(designator)? {
            return Ok(self.variables.operand(place, value_type, span));
        }
        Err(match designator.scope {
            Scope::Global if designator.keys.is_none() => {
                let mut known = self.variables.globals();
                known.extend(names::variables().map(|name| -> &str { name }));
                let meant = spelling::hint(designator.name, known);
                let message = format!("failed to resolve {}: Unknown variable name{meant}", designator.text);
                self.hint(Diagnostic::new("D_IDENT_UNDEF", span, message), designator)
            }
            _ => self.unassigned(designator),
        })
    }

    /// The error of a variable that has no value and no type yet.
    pub(super) fn unassigned(&self, designator: &Designator<'_>) -> Diagnostic {
        let message = format!("{} has not yet been declared or assigned", designator.text);
        self.hint(Diagnostic::new("D_VAR_UNDEF", designator.span, message), designator)
    }

    /// Adds the hint for an unknown variable: that it is assigned later, or that its name may be misspelt.
    fn hint(&self, diagnostic: Diagnostic, designator: &Designator<'_>) -> Diagnostic {
        let Some(assigned) = self.later.first(&designator.text) else {
            return match super::bpftrace_hints::variable(designator.name).filter(|_| designator.scope == Scope::Global)
            {
                Some(help) => diagnostic.with_help(help),
                None => diagnostic,
            };
        };
        let scope = match designator.scope {
            Scope::Global => "",
            Scope::ThreadLocal => "self ",
            Scope::ClauseLocal => "this ",
        };
        let keys = if designator.keys.is_some() { "[...]" } else { "" };
        let help = format!(
            "declare it before the clause, with its type: {scope}int64_t {}{keys};",
            designator.name
        );
        if assigned > designator.span {
            diagnostic
                .with_related(assigned, "it is assigned here, later in the text")
                .with_help(help + " or put the clause that assigns it first")
        } else {
            diagnostic.with_help(help)
        }
    }
}
