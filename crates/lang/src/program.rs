//! The program form: what the front end hands to the code generator and to the interpreter.
//!
//! Everything is resolved. Names are indices, and every expression carries its type. Implicit
//! conversions are explicit [`ExpressionKind::Cast`]s. Compound assignments and increments are explicit
//! nodes. Nothing here depends on a process.
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
//! | `action` | statements and their records |
//! | `expression`, `operator` | values and places |
//! | `function` | subroutines |
//! | `aggregation` | aggregating functions and keys |
//! | `value_type`, `structure`, `foreign` | types |

mod action;
mod aggregation;
mod builtin;
mod expression;
mod foreign;
mod function;
mod operator;
mod other;
mod stack;
mod structure;
mod value_type;

pub use action::{KeyExpression, RecordAction, RecordKind, Statement};
pub use aggregation::{AGGREGATING, AggregatingFunction, AggregatingRow, Aggregation, KeyType, SymbolKind};
pub use builtin::{BUILTINS, BuiltinRow, builtin_row};
pub use expression::{Builtin, Expression, ExpressionKind, Place, Scope};
pub use foreign::{Foreign, ForeignKind};
pub use function::{
    CURRENT_FOLDER, Function, PATH_OF_DEVICE, PATH_OF_PROGRAM, Parameter, ROOT_FOLDER, USER_FRAMES_MAX,
};
pub use operator::{BinaryOperator, LogicalOperator, UnaryOperator};
pub use other::OtherPart;
pub use stack::{Side, Stack};
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
    /// The clauses in the order of the text. Clauses on one probe run in this order.
    pub clauses: Vec<Clause>,
    /// Global variables, shared by all threads; indexed by [`VariableId`].
    pub globals: Vec<Variable>,
    /// `self->` variables: each thread has its own.
    pub thread_locals: Vec<Variable>,
    /// `this->` variables: they live as long as one firing of a probe, across its clauses. Names with a
    /// `%` are made by the front end.
    pub clause_locals: Vec<Variable>,
    /// The aggregations; indexed by [`AggregationId`].
    pub aggregations: Vec<Aggregation>,
    /// `#pragma D option name[=value]`, in order of appearance.
    pub pragmas: Vec<Pragma>,
    /// Where Go's runtime keeps goroutines, if the text uses them.
    pub goroutines: Option<Goroutines>,
    /// Whether processes that the target forks are traced, too. Then `pid` is no constant.
    pub follows: bool,
    /// Whether `self->` variables belong to goroutines. A thread that runs no goroutine then has variables of its own.
    pub self_is_task: bool,
}

/// Where Go's runtime keeps the goroutine that a thread runs. Each field is an offset in bytes from the
/// address that the previous step has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Goroutines {
    /// From the thread pointer to the pointer to `g`, the goroutine of the current stack.
    pub slot: i64,
    /// In a `g`: to the pointer to its `m`, the thread.
    pub m: u16,
    /// In an `m`: the offset of the pointer to the `g` that it runs, even while it is on a stack of the runtime or of
    /// C.
    pub current: u16,
    /// In a `g`: to the number of the goroutine.
    pub number: u16,
}

/// `#pragma D option name[=value]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pragma {
    /// The name as written; [`crate::options::Options`] knows its meaning.
    pub name: String,
    /// The text after the `=`, without quotes.
    pub value: Option<String>,
    pub span: Span,
}

/// One clause: its probes, its condition, its statements.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    /// The probe descriptions, at least one.
    pub probes: Vec<ProbeDescription>,
    /// The condition, which is evaluated first. If it is zero, the clause ends.
    pub predicate: Option<Expression>,
    /// The statements, executed in order until one faults.
    pub statements: Vec<Statement>,
    /// The place of the clause in the text. If an `if` was split into several clauses, they share this span
    /// and the spans of their probe descriptions. So to count the clauses of the text, count distinct spans.
    pub span: Span,
    /// The probe that the clause belongs to, where `probes` are only the places at which that probe fires.
    pub derived: Option<DerivedProbe>,
}

/// A probe that follows from other probes ([`crate::derived`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedProbe {
    /// `io`, `plockstat1234`.
    pub provider: String,
    /// `None`: the module and the function of the place where it fires.
    pub place: Option<(String, String)>,
    pub name: String,
    /// The description in the text that means it.
    pub written: ProbeDescription,
    /// Whether the clause only keeps what the clauses on derived probes need. Nothing of it is shown.
    pub is_hidden: bool,
    /// Whether it fires only in programs that a traced process has executed.
    pub only_executed: bool,
}

impl Clause {
    /// Whether firing this clause writes a record: it has an action that records, or no statement at
    /// all. In the second case a bare record makes the consumer print the probe's columns.
    pub fn records(&self) -> bool {
        self.statements.is_empty() || self.statements.iter().any(|s| matches!(s, Statement::Record(_)))
    }

    /// Whether firing this clause walks the thread's stack: `ustack()`, `ucaller`, `ustackdepth`, `uframe()`.
    pub fn walks_stack(&self) -> bool {
        self.shows_stack(Side::Program)
            || self.computes(&|expression| {
                matches!(
                    expression.kind,
                    ExpressionKind::Builtin(Builtin::UserCaller | Builtin::UserStackDepth)
                        | ExpressionKind::Call {
                            function: Function::UserFrame,
                            ..
                        }
                )
            })
    }

    /// Whether firing this clause records a stack of this side, or has one in a key.
    pub fn shows_stack(&self, side: Side) -> bool {
        let is_its = |stack: &Stack| stack.side == side;
        let shows = |statement: &Statement| match statement {
            Statement::Aggregate { keys, .. } => {
                let mut keys = keys.iter();
                keys.any(|key| matches!(key, KeyExpression::Stack(stack) if is_its(stack)))
            }
            Statement::Record(action) => matches!(&action.kind, RecordKind::Stack(stack) if is_its(stack)),
            Statement::Expression(_) => false,
        };
        let computed = |expression: &Expression| matches!(&expression.kind, ExpressionKind::Builtin(Builtin::Stack(stack)) if is_its(stack));
        self.statements.iter().any(shows) || self.computes(&computed)
    }

    /// Whether firing this clause may call a subroutine.
    pub fn calls(&self, wanted: Function) -> bool {
        self.computes(
            &|expression| matches!(expression.kind, ExpressionKind::Call { function, .. } if function == wanted),
        )
    }

    /// Whether firing this clause may read a variable of the tracer's.
    pub fn reads(&self, wanted: Builtin) -> bool {
        self.computes(&|expression| matches!(expression.kind, ExpressionKind::Builtin(builtin) if builtin == wanted))
    }

    /// Whether firing this clause may assign a global variable, or an element of a global array.
    pub fn assigns_globals(&self) -> bool {
        self.computes(&|expression| {
            let (ExpressionKind::Assign { place, .. }
            | ExpressionKind::AssignOperator { place, .. }
            | ExpressionKind::Increment { place, .. }) = &expression.kind
            else {
                return false;
            };
            let (Place::Scalar { scope, .. } | Place::Element { scope, .. } | Place::Field { scope, .. }) = place
            else {
                return false;
            };
            *scope == Scope::Global
        })
    }

    /// Whether firing this clause may read anything of another thread.
    pub fn reads_other(&self) -> bool {
        self.computes(&|expression| matches!(expression.kind, ExpressionKind::Builtin(Builtin::Other(_))))
    }

    /// Whether any part of any expression is `wanted`.
    fn computes(&self, wanted: &dyn Fn(&Expression) -> bool) -> bool {
        let mut pending: Vec<&Expression> = self.predicate.iter().collect();
        for statement in &self.statements {
            match statement {
                Statement::Expression(expression) => pending.push(expression),
                Statement::Aggregate {
                    keys, value, weight, ..
                } => {
                    pending.extend(keys.iter().filter_map(|key| match key {
                        KeyExpression::Value(expression) => Some(expression),
                        KeyExpression::Stack(_) => None,
                    }));
                    pending.extend(value.iter().chain(weight));
                }
                Statement::Record(action) => pending.extend(crate::layout::recorded_values(&action.kind)),
            }
        }
        while let Some(expression) = pending.pop() {
            if wanted(expression) {
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
    /// The library or executable.
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
