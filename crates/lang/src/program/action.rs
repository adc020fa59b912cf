//! Statements: what a clause does.

use super::{AggregationId, Expression, Foreign, SymbolKind, Type};
use crate::source::Span;

/// A statement of a clause. There is no `if`: the front end takes it apart into clauses.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// Evaluated for its effects (assignments).
    Expression(Expression),
    /// `@a[keys] = f(value[, weight])`.
    Aggregate {
        /// Which.
        aggregation: AggregationId,
        /// As many as the aggregation has.
        keys: Vec<KeyExpression>,
        /// What is aggregated, an integer; none for `count`.
        value: Option<Expression>,
        /// An `int64_t`, for the three quantizing functions; none: 1.
        weight: Option<Expression>,
        /// Where.
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
    /// The stack of the thread.
    UserStack {
        /// At most so many frames; 0: as many as the option says.
        frames: u32,
    },
}

/// An action that records. What each puts into the record is in [`crate::layout`].
#[derive(Clone, Debug, PartialEq)]
pub struct RecordAction {
    /// Which.
    pub kind: RecordKind,
    /// Where.
    pub span: Span,
}

/// The actions that record.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordKind {
    /// `trace(e)`.
    Trace(Expression),
    /// `trace(e)` of a value of an enumeration of the program's: printed by name.
    TraceName {
        /// An integer.
        value: Expression,
        /// What has the names.
        of: Foreign,
    },
    /// `tracemem(address, size[, shown])`: bytes, always printed as a dump; and, when there is a
    /// third argument, how many of them: all, when it is negative or more than there are.
    TraceMemory(Vec<Expression>),
    /// `printf(format, ...)`: the format is parsed and checked against the arguments.
    Printf {
        /// Parsed and checked.
        format: crate::format::Format,
        /// In order.
        arguments: Vec<Expression>,
    },
    /// `printa([format,] @a, ...)`: nothing but the request is recorded; the consumer prints what it has.
    Printa {
        /// None: the default output.
        format: Option<crate::format::Format>,
        /// At least one; their keys match.
        aggregations: Vec<AggregationId>,
    },
    /// `ustack([frames[, strsize]])`; frames 0: the option.
    UserStack {
        /// At most so many; 0: as the option says.
        frames: u32,
    },
    /// `uaddr(address)`, `usym(address)`, `ufunc(address)`, `umod(address)`: the tracer finds the name when it prints.
    Symbol {
        /// What is printed.
        kind: SymbolKind,
        /// An `uint64_t`.
        address: Expression,
    },
    /// `exit(status)`.
    Exit(Expression),
    /// `clear(@a)`, `trunc(@a[, n])`, `normalize(@a, n)`, `denormalize(@a)`: carried out by the consumer.
    Clear(AggregationId),
    /// `trunc(@a[, count])`.
    Truncate {
        /// Which.
        aggregation: AggregationId,
        /// Keys that stay, an `int64_t`: the largest, or the smallest when negative; none: no key stays.
        count: Option<Expression>,
    },
    /// `normalize(@a, factor)`: divides what is printed.
    Normalize {
        /// Which.
        aggregation: AggregationId,
        /// The divisor, an `int64_t`.
        factor: Expression,
    },
    /// `denormalize(@a)`: undoes that.
    Denormalize(AggregationId),
    /// `print(value)`: the value with its type, a structure member by member.
    Print {
        /// An integer, a pointer, a string, or the bytes of what has another type.
        value: Expression,
        /// The type that is shown.
        shown: Type,
    },
    /// `print(pointer)`: where it points to, and what lies there.
    PrintAt {
        /// The pointer, then the value behind it.
        values: Vec<Expression>,
        /// The type of that.
        shown: Type,
    },
    /// `system(format, ...)`: a command for the shell.
    System {
        /// Parsed and checked.
        format: crate::format::Format,
        /// In order.
        arguments: Vec<Expression>,
    },
    /// `freopen(format, ...)`: the file that output goes to from here on; an empty name: standard output again.
    Reopen {
        /// Parsed and checked.
        format: crate::format::Format,
        /// In order.
        arguments: Vec<Expression>,
    },
    /// `ftruncate()`: empties the output file.
    TruncateOutput,
    /// `setopt(name[, value])`: one or two strings.
    SetOption(Vec<Expression>),
    /// `stop()`: the tracer stops the process when it reads the record.
    Stop,
    /// `raise(signal)`: likewise.
    Raise(Expression),
    /// `speculate(id)`: the record is kept until somebody commits it. The clause ends here when
    /// there is no such speculation.
    Speculate(Expression),
    /// `commit(id)`.
    CommitSpeculation(Expression),
    /// `discard(id)`.
    DiscardSpeculation(Expression),
}

impl RecordKind {
    /// Its name in D, where it is an action that needs the option `destructive`.
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

    /// Whether it leaves nothing to be printed: a clause of nothing else has no line of output.
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
