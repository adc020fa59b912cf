//! Declarations of variables.

use super::declarations::{as_integer, redeclared};
use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::memory;
use crate::lower::refusals::unsupported;
use crate::lower::scalarize::is_by_member;
use crate::program::{Scope, Type, Variable, size_of};
use crate::source::Span;
use crate::syntax::{Declarator, Derived, TypeName};
use crate::types;

impl Checker {
    /// `base` is the type that begins the declaration, and the form in which `print()` shows that type.
    pub(super) fn declare(
        &mut self,
        scope: Scope,
        (base, shown): (&Type, &Type),
        declarator: &Declarator,
    ) -> Checked<()> {
        let span = declarator.span;
        let (value_type, keys) = match declarator.derived.split_last() {
            Some((Derived::Keys(keys), rest)) => (self.derive(base.clone(), rest, span)?, Some(keys)),
            Some((Derived::ArrayOfUnknownSize, _)) => {
                return Err(Diagnostic::new(
                    "D_DECL_ARRNULL",
                    span,
                    format!(
                        "array declaration requires array dimension or tuple signature: {}",
                        declarator.name
                    ),
                ));
            }
            // A function is recorded by name only: D cannot call it.
            Some((Derived::Function, rest)) if scope == Scope::Global => {
                return self.derive(base.clone(), rest, span).map(|_| ());
            }
            _ => (self.derive(base.clone(), &declarator.derived, span)?, None),
        };
        if value_type == Type::Void {
            let message = format!("cannot declare void object: {}", declarator.name);
            return Err(Diagnostic::new("D_DECL_VOIDOBJ", span, message));
        }
        let float = self
            .scope
            .floats
            .get(&declarator.name)
            .filter(|_| scope == Scope::Global);
        if float.is_some_and(|before| !matches!(&value_type, Type::Foreign(of) if of == before)) {
            return Err(redeclared(&declarator.name, span));
        }
        if let Type::Foreign(of) = &value_type
            && of.integer().is_none()
        {
            if keys.is_none()
                && scope == Scope::Global
                && self.variables.known(Scope::Global, &declarator.name).is_none()
            {
                self.scope.floats.insert(declarator.name.clone(), of.clone());
                return Ok(());
            }
            return Err(unsupported("N_FLOAT", "a variable of floating point", span)
                .with_help("D computes with integers; print(*(double *)address) shows one of the program's"));
        }
        let keys = match keys {
            None => None,
            Some(_) if scope == Scope::ClauseLocal => {
                let message = format!("cannot declare a clause-local associative array: {}", declarator.name);
                return Err(Diagnostic::new("D_DECL_LOCASSC", span, message));
            }
            Some(keys) => Some(keys.iter().map(|key| self.key_type(key)).collect::<Checked<Vec<_>>>()?),
        };
        if is_by_member(&value_type, keys.is_some(), span)? {
            return self.declare_by_member(scope, &declarator.name, (&value_type, keys), span);
        }
        self.declare_as((scope, shown), (value_type, keys), declarator)
    }

    /// A variable of this type that is stored as a whole, not member by member.
    fn declare_as(
        &mut self,
        (scope, shown): (Scope, &Type),
        (value_type, keys): (Type, Option<Vec<Type>>),
        declarator: &Declarator,
    ) -> Checked<()> {
        let span = declarator.span;
        let is_array = keys.is_some();
        let aggregate = memory::bytes_for(&value_type, span)?;
        let variable = Variable {
            name: declarator.name.clone(),
            value_type: aggregate.clone().unwrap_or_else(|| as_integer(&value_type)),
            keys,
        };
        if let Some(known) = self.variables.known(scope, &declarator.name) {
            let before = self.variables.held_by((scope, known.id));
            if self.variables.named_variable((scope, known.id)).as_ref() == Some(&variable)
                && before == aggregate.as_ref().map(|_| &value_type)
            {
                return Ok(());
            }
            return Err(redeclared(&declarator.name, span).with_related(known.span, "it was first declared here"));
        }
        if scope == Scope::Global {
            self.check_new_name(&declarator.name, span)?;
        }
        let id = self.variables.define(scope, variable, span);
        if !is_array {
            let shown = self.shown_derived(shown.clone(), &declarator.derived, &value_type);
            self.types.shown.variables.insert((scope, id), shown);
        }
        self.variables.names_values((scope, id), &value_type);
        if aggregate.is_some() {
            self.variables.hold((scope, id), value_type);
        }
        Ok(())
    }

    /// A variable whose structures are stored member by member.
    fn declare_by_member(
        &mut self,
        scope: Scope,
        name: &str,
        (of, keys): (&Type, Option<Vec<Type>>),
        span: Span,
    ) -> Checked<()> {
        if let Some(known) = self.variables.known(scope, name) {
            let keys_before = self.variables.get((scope, known.id)).map(|variable| &variable.keys);
            if self.variables.of_by_member((scope, known.id)) == Some(of) && keys_before == Some(&keys) {
                return Ok(());
            }
            return Err(redeclared(name, span).with_related(known.span, "it was first declared here"));
        }
        if scope == Scope::Global {
            self.check_new_name(name, span)?;
        }
        self.variables.define_by_member(scope, name, (of, keys), span);
        Ok(())
    }

    fn key_type(&mut self, key: &TypeName) -> Checked<Type> {
        match as_integer(&self.type_of(key)?) {
            found @ (Type::Integer(_) | Type::String) => Ok(found),
            Type::Pointer(_) => Ok(Type::U64),
            found @ Type::Structure(_) if size_of(&found).is_some() => Ok(found),
            other => Err(Diagnostic::new(
                "D_DECL_PROTO_TYPE",
                key.span,
                format!("{} may not be the type of an array's key", types::name(&other)),
            )),
        }
    }
}
