//! The program form: what the front end hands to the code generator and to the interpreter.
//!
//! Everything is resolved: names are indices, every expression carries its type, implicit
//! conversions are explicit [`ExpressionKind::Cast`]s, compound assignments and increments are
//! explicit nodes. Nothing here knows a process.
//!
//! Integer semantics. A value of an integer type is held in 64 bits, sign- or zero-extended from
//! its width according to its type. As in DTrace, operators work on 64 bits, whatever the C types
//! of their operands are. The C type of the result decides whether the operation is signed. The
//! result is cut to this type where it is stored, recorded or cast ([`ExpressionKind::Narrow`]).
//! Arithmetic wraps. Shifts use the low 6 bits of the count (5 for a shift of a narrower type,
//! which the front end does not make). Division and remainder by zero are the run-time fault
//! "divide by zero"; `MIN / -1` yields `MIN`, `MIN % -1` yields 0.
//!
//! | file | holds |
//! |---|---|
//! | this one | the program, its clauses, probes and variables |
//! | `action` | statements and what they record |
//! | `expression`, `operator` | values and places |
//! | `aggregation` | aggregating functions and keys |
//! | `value_type`, `structure`, `foreign` | types |

mod action;
mod aggregation;
mod builtin;
mod expression;
mod foreign;
mod operator;
mod structure;
mod value_type;

pub use action::{KeyExpression, RecordAction, RecordKind, Statement};
pub use aggregation::{AGGREGATING, AggregatingFunction, AggregatingRow, Aggregation, KeyType, SymbolKind};
pub use builtin::{BUILTINS, BuiltinRow, builtin_row};
pub use expression::{
    Builtin, CURRENT_FOLDER, Expression, ExpressionKind, Function, Parameter, Place, ROOT_FOLDER, Scope,
};
pub use foreign::{Foreign, ForeignKind};
pub use operator::{BinaryOperator, LogicalOperator, UnaryOperator};
pub use structure::{
    Bits, Body, Declared, Found, Member, Packing, Source as StructureSource, Structure, alignment_of, holds_strings,
    size_of, step_of, unit_of,
};
pub use value_type::{IntegerType, Type};

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
    /// In the order of the text: clauses on one probe run in this order.
    pub clauses: Vec<Clause>,
    /// Shared by all threads; indexed by [`VariableId`].
    pub globals: Vec<Variable>,
    /// `self->`: one for each thread.
    pub thread_locals: Vec<Variable>,
    /// `this->`: they live as long as one firing of a probe, across its clauses. The front end
    /// makes the names with a `%`.
    pub clause_locals: Vec<Variable>,
    /// Indexed by [`AggregationId`].
    pub aggregations: Vec<Aggregation>,
    /// `#pragma D option name[=value]`, in order of appearance.
    pub pragmas: Vec<Pragma>,
    /// Where Go's runtime keeps goroutines, if the text needs to know.
    pub goroutines: Option<Goroutines>,
    /// Whether `self->` variables belong to the goroutine (to the thread, while it runs none).
    pub self_is_task: bool,
}

/// Where Go's runtime keeps the goroutine that a thread runs. Each is an offset in bytes from the
/// address that the one before has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Goroutines {
    /// From the thread pointer: the `g` of the current stack.
    pub slot: i64,
    /// In a `g`: its `m`.
    pub m: u16,
    /// In an `m`: the `g` of the goroutine that it runs, even while it is on a stack of the runtime or of C.
    pub current: u16,
    /// In a `g`: its number.
    pub number: u16,
}

/// `#pragma D option name[=value]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pragma {
    /// The name as written; [`crate::options::Options`] knows it.
    pub name: String,
    /// The text after the `=`, without quotes.
    pub value: Option<String>,
    pub span: Span,
}

/// One clause: its probes, its condition, its statements.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    /// At least one.
    pub probes: Vec<ProbeDescription>,
    /// Evaluated first; zero ends the clause.
    pub predicate: Option<Expression>,
    /// Executed in order, until one faults.
    pub statements: Vec<Statement>,
    /// The clause as it was written. Clauses that an `if` was split into share it, and share the
    /// spans of their probe descriptions. So to count what the user wrote, count distinct spans.
    pub span: Span,
}

impl Clause {
    /// Whether firing this clause writes a record: it has an action that records, or no statement
    /// at all (then a bare record makes the consumer print the probe's columns).
    pub fn records(&self) -> bool {
        self.statements.is_empty() || self.statements.iter().any(|s| matches!(s, Statement::Record(_)))
    }

    /// Whether firing it walks the thread's stack: `ustack()`, `ucaller`, `ustackdepth`.
    pub fn walks_stack(&self) -> bool {
        let mut pending: Vec<&Expression> = self.predicate.iter().collect();
        for statement in &self.statements {
            match statement {
                Statement::Expression(expression) => pending.push(expression),
                Statement::Aggregate {
                    keys, value, weight, ..
                } => {
                    for key in keys {
                        match key {
                            KeyExpression::Value(expression) => pending.push(expression),
                            KeyExpression::UserStack { .. } => return true,
                        }
                    }
                    pending.extend(value.iter().chain(weight));
                }
                Statement::Record(action) if matches!(action.kind, RecordKind::UserStack { .. }) => return true,
                Statement::Record(action) => pending.extend(crate::layout::recorded_values(&action.kind)),
            }
        }
        while let Some(expression) = pending.pop() {
            if let ExpressionKind::Builtin(Builtin::UserCaller | Builtin::UserStackDepth | Builtin::UserStack(_)) =
                expression.kind
            {
                return true;
            }
            pending.extend(expression.operands());
        }
        false
    }
}

/// `provider:module:function:name` with globs; an empty field matches all. Macro arguments are already replaced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbeDescription {
    /// `pid1234`, `profile`, ...
    pub provider: String,
    /// The library or program.
    pub module: String,
    pub function: String,
    /// `entry`, `return`, an offset, `tick-1s`, ...
    pub name: String,
    pub span: Span,
}

/// A variable of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// The name as written, without `self->` or `this->`.
    pub name: String,
    /// The type of the value; for an associative array, of an element.
    pub value_type: Type,
    /// The types of the keys of an associative array; a structure or array has one key for each of
    /// its words. `None`: a scalar.
    pub keys: Option<Vec<Type>>,
}
