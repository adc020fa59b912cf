//! Statements of a clause.

use super::{AggregationId, Expression, Foreign, Stack, SymbolKind, Type};
use crate::source::Span;

/// A statement of a clause. There is no `if`: the front end splits it into clauses.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// An expression that is evaluated for its effects (assignments).
    Expression(Expression),
    /// `@a[keys] = f(value[, weight])`.
    Aggregate {
        aggregation: AggregationId,
        /// The keys, as many as the aggregation has.
        keys: Vec<KeyExpression>,
        /// The integer to aggregate; `None` for `count`.
        value: Option<Expression>,
        /// An `int64_t`, for the three quantizing functions; `None` means 1.
        weight: Option<Expression>,
        span: Span,
    },
    /// Adds data to the clause's record.
    Record(RecordAction),
}

/// An element of an aggregation's key.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyExpression {
    /// An integer or a string.
    Value(Expression),
    /// A stack of the thread.
    Stack(Stack),
}

/// An action that records. [`crate::layout`] says what each action puts into the record.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordAction {
    pub kind: RecordKind,
    pub span: Span,
}

/// The actions that record.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordKind {
    /// `trace(e)`.
    Trace(Expression),
    /// `trace(e)` of a value of one of the program's enumerations, which is printed by name.
    TraceName {
        value: Expression,
        /// The enumeration, which has the names.
        of: Foreign,
    },
    /// `tracemem(address, size[, shown])`: bytes that are always printed as a dump. The third argument
    /// is the number of bytes to print. If it is negative or too large, all are printed.
    TraceMemory(Vec<Expression>),
    /// `printf(format, ...)`: the format is parsed and checked against the arguments.
    Printf {
        format: crate::format::Format,
        arguments: Vec<Expression>,
    },
    /// `printa([format,] @a, ...)`: only the request is recorded; the consumer prints the aggregations.
    Printa {
        /// The format; `None`: the default output.
        format: Option<crate::format::Format>,
        /// The aggregations, at least one. All have the same kinds of keys.
        aggregations: Vec<AggregationId>,
    },
    /// `ustack([frames[, strsize]])`, `stack([frames])`.
    Stack(Stack),
    /// `uaddr(address)`, `usym(address)`, `ufunc(address)`, `umod(address)`: the tracer looks the
    /// name up when it prints.
    Symbol {
        kind: SymbolKind,
        /// The address, an `uint64_t`.
        address: Expression,
    },
    /// `exit(status)`.
    Exit(Expression),
    /// `clear(@a)`, `trunc(@a[, n])`, `normalize(@a, n)`, `denormalize(@a)`: the consumer executes them.
    Clear(AggregationId),
    /// `trunc(@a[, count])`.
    Truncate {
        aggregation: AggregationId,
        /// How many keys stay, an `int64_t`: the largest, or if negative the smallest. `None`: no key stays.
        count: Option<Expression>,
    },
    /// `normalize(@a, factor)`: divides the printed values.
    Normalize {
        aggregation: AggregationId,
        /// The divisor, an `int64_t`.
        factor: Expression,
    },
    /// `denormalize(@a)`: undoes `normalize`.
    Denormalize(AggregationId),
    /// `print(value)`: the value with its type, a structure member by member.
    Print {
        /// An integer, a pointer, a string, or the bytes of a value of another type.
        value: Expression,
        /// The type to print.
        shown: Type,
    },
    /// `print(pointer)`: the address, and the value at that address.
    PrintAt {
        /// The pointer, then the value that it points to.
        values: Vec<Expression>,
        /// The type of the value.
        shown: Type,
    },
    /// `system(format, ...)`: a command for the shell.
    System {
        format: crate::format::Format,
        arguments: Vec<Expression>,
    },
    /// `freopen(format, ...)`: redirects the output to a file. An empty name restores standard output.
    Reopen {
        format: crate::format::Format,
        arguments: Vec<Expression>,
    },
    /// `ftruncate()`: empties the output file.
    TruncateOutput,
    /// `setopt(name[, value])`: one or two strings.
    SetOption(Vec<Expression>),
    /// `stop()`: the tracer stops the process when it reads the record.
    Stop,
    /// `raise(signal)`: the tracer sends the signal when it reads the record.
    Raise(Expression),
    /// `speculate(id)`: the record is kept until a `commit`. If there is no such speculation, the clause
    /// ends here.
    Speculate(Expression),
    /// `commit(id)`.
    CommitSpeculation(Expression),
    /// `discard(id)`.
    DiscardSpeculation(Expression),
}

impl RecordKind {
    /// The name in D, if the action needs the option `destructive`.
    #[must_use]
    pub fn destructive(&self) -> Option<&'static str> {
        match self {
            RecordKind::System { .. } => Some("system"),
            RecordKind::Reopen { .. } => Some("freopen"),
            RecordKind::Stop => Some("stop"),
            RecordKind::Raise(_) => Some("raise"),
            _ => None,
        }
    }

    /// Whether the action prints nothing: a clause with only such actions has no line of output.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        matches!(
            self,
            RecordKind::Stop
                | RecordKind::Raise(_)
                | RecordKind::CommitSpeculation(_)
                | RecordKind::DiscardSpeculation(_)
        )
    }
}
