//! The variables of a program, and how each is stored.

use super::access_path::Part;
use super::{enumerations, implicit_width, memory};
use crate::program::{
    Expression, ExpressionKind, Foreign, IntegerType, Place, Program, Scope, Type, Variable, VariableId,
};
use crate::source::Span;
use std::collections::{HashMap, HashSet};

/// The facts about a variable besides its type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) id: VariableId,
    /// Where the variable was declared or first assigned.
    pub(crate) span: Span,
}

/// The scope and the index of a variable.
pub(crate) type Home = (Scope, VariableId);

/// The purpose of a shared temporary. Each use reads the temporary before the next use assigns it, or
/// every use assigns the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Not 0: one of the clauses that an `if` was split into has begun and not ended.
    Error,
    /// The condition of this number in a clause.
    Condition(usize),
    /// A string that is copied to scratch memory.
    Text,
    /// A number of bytes to reserve in scratch memory.
    Size,
    /// The string that `strtok( )` works on.
    Token,
    /// Whether `strtok( )` has a string.
    TokenGiven,
    /// The scratch memory in which a character of a string is changed.
    Characters,
    /// The operands of `bcopy( )`.
    CopyText,
    CopySource,
    CopyDestination,
    CopySize,
}

/// The variables of one scope.
#[derive(Default)]
struct Scoped {
    /// All variables of the scope. Variables without a name are parts of other variables, or temporaries.
    all: Vec<Variable>,
    names: HashMap<String, Known>,
}

/// All variables.
#[derive(Default)]
pub(crate) struct Variables {
    globals: Scoped,
    thread_locals: Scoped,
    clause_locals: Scoped,
    /// Variables that hold a structure or an array: in the program's form these are bytes.
    aggregates: HashMap<Home, Type>,
    /// Variables whose structures are stored member by member, each member in a variable of its own
    /// ([`super::scalarize`]).
    pub(super) by_member: HashMap<Home, Type>,
    /// The variable of each such member, by the variable of the structure and the member.
    pub(super) parts: HashMap<(Home, Part), VariableId>,
    pub(super) is_part: HashSet<Home>,
    /// Variables that are held in 64 bits, and the type of their first assignment ([`implicit_width`]).
    implicit_widths: HashMap<Home, IntegerType>,
    /// Variables whose values belong to one of the program's enumerations: in the program's form these are integers.
    enumerations: HashMap<Home, Foreign>,
    /// Temporaries that all uses for one purpose share.
    pub(super) shared: HashMap<Purpose, VariableId>,
    /// Temporaries that hold copies of structures. A store into such a copy would be lost.
    pub(super) copies: HashSet<VariableId>,
    /// Temporaries that hold copies of unions stored member by member, and the variables of the unions' words.
    pub(super) union_copies: HashMap<VariableId, Vec<Place>>,
}

impl Variables {
    fn scoped(&self, scope: Scope) -> &Scoped {
        match scope {
            Scope::Global => &self.globals,
            Scope::ThreadLocal => &self.thread_locals,
            Scope::ClauseLocal => &self.clause_locals,
        }
    }

    fn scoped_mut(&mut self, scope: Scope) -> &mut Scoped {
        match scope {
            Scope::Global => &mut self.globals,
            Scope::ThreadLocal => &mut self.thread_locals,
            Scope::ClauseLocal => &mut self.clause_locals,
        }
    }

    /// The variable that the text knows by this name.
    pub(crate) fn known(&self, scope: Scope, name: &str) -> Option<Known> {
        self.scoped(scope).names.get(name).copied()
    }

    /// The names of the global variables that the text knows so far, in order.
    pub(crate) fn globals(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.globals.names.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn get(&self, (scope, id): Home) -> Option<&Variable> {
        self.scoped(scope).all.get(id.0 as usize)
    }

    /// How many variables a scope has.
    pub(super) fn count(&self, scope: Scope) -> usize {
        self.scoped(scope).all.len()
    }

    /// Adds a variable that the text knows by its name.
    pub(crate) fn define(&mut self, scope: Scope, variable: Variable, span: Span) -> VariableId {
        let name = variable.name.clone();
        let id = self.add(scope, variable);
        self.scoped_mut(scope).names.insert(name, Known { id, span });
        id
    }

    /// Adds a variable without a name in the text. Its own name is only for people who read the program.
    pub(super) fn add(&mut self, scope: Scope, variable: Variable) -> VariableId {
        let all = &mut self.scoped_mut(scope).all;
        let id = VariableId(u32::try_from(all.len()).unwrap_or(u32::MAX));
        all.push(variable);
        id
    }

    /// The place in the text of the first thread-local variable.
    pub(crate) fn first_thread_local(&self) -> Option<Span> {
        let spans = self.thread_locals.names.values().map(|known| known.span);
        spans.min_by_key(|span| (span.source, span.start))
    }

    /// Remembers the structure or array that a variable of bytes holds.
    pub(crate) fn hold(&mut self, home: Home, of: Type) {
        self.aggregates.insert(home, of);
    }

    /// The structure or array that a variable of bytes holds.
    pub(crate) fn held_by(&self, home: Home) -> Option<&Type> {
        self.aggregates.get(&home)
    }

    /// Remembers the type that a text sees for a variable of 64 bits.
    pub(crate) fn widen(&mut self, home: Home, named: IntegerType) {
        self.implicit_widths.insert(home, named);
    }

    /// Remembers the type of a variable's values, if it is one of the program's enumerations.
    pub(crate) fn names_values(&mut self, home: Home, of: &Type) {
        if let Type::Foreign(foreign) = of
            && foreign.integer().is_some()
        {
            self.enumerations.insert(home, foreign.clone());
        }
    }

    /// The type that a text sees for a value held in 64 bits.
    pub(crate) fn named_type(&self, place: &Place) -> Option<IntegerType> {
        self.implicit_widths.get(&home_of(place)?).copied()
    }

    /// The value of a place, or the value assigned to it, with the type that the text sees.
    /// Operators take all 64 bits.
    pub(crate) fn as_named(&self, value: Expression, place: &Place) -> Expression {
        implicit_width::as_type(value, self.named_type(place))
    }

    /// A variable as the text sees it.
    pub(crate) fn named_variable(&self, home: Home) -> Option<Variable> {
        let mut variable = self.get(home)?.clone();
        if let Some(named) = self.implicit_widths.get(&home) {
            variable.value_type = Type::Integer(*named);
        }
        Some(variable)
    }

    /// The type of a variable, or of a part of one, that is stored member by member.
    pub(crate) fn held_by_member(&self, place: &Place) -> Option<&Type> {
        self.by_member.get(&home_of(place)?)
    }

    /// The type of a variable that is stored member by member.
    pub(crate) fn of_by_member(&self, home: Home) -> Option<&Type> {
        self.by_member.get(&home)
    }

    /// The operand for a place of this type.
    pub(crate) fn operand(&self, place: Place, value_type: Type, span: Span) -> Expression {
        if let Some(of) = self.held_by_member(&place).cloned() {
            return Expression {
                kind: ExpressionKind::Variable(place),
                value_type: of,
                span,
            };
        }
        if let Place::Scalar { scope, variable } = place
            && let Some(of) = self.held_by((scope, variable)).cloned()
        {
            return memory::start_of((scope, variable), of, span);
        }
        let names = home_of(&place).and_then(|home| self.enumerations.get(&home));
        let named = self.named_type(&place);
        let all = Expression {
            kind: ExpressionKind::Variable(place),
            value_type,
            span,
        };
        let value = implicit_width::as_type(all, named);
        match names {
            Some(of) => enumerations::of_enumeration(value, of),
            None => value,
        }
    }

    /// Moves all variables to the program.
    pub(crate) fn into_program(self, program: &mut Program) {
        program.globals = self.globals.all;
        program.thread_locals = self.thread_locals.all;
        program.clause_locals = self.clause_locals.all;
    }
}

/// The variable of a place, or the array that the place is an element of; `None` for a part of a variable.
fn home_of(place: &Place) -> Option<Home> {
    match place {
        Place::Scalar { scope, variable } | Place::Element { scope, variable, .. } => Some((*scope, *variable)),
        Place::Field { .. } | Place::Memory { .. } => None,
    }
}
