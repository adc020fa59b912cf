//! Expressions: what a clause computes, and the places where it keeps it.
//!
//! Each node has the type of its value; the rules of the operators are those at the head of [`super`].

use super::{BinaryOperator, LogicalOperator, Type, UnaryOperator, VariableId};
use crate::source::Span;

/// A value to compute.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    /// How.
    pub kind: ExpressionKind,
    /// The type of the value.
    pub value_type: Type,
    /// Where.
    pub span: Span,
}

/// The kinds of expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ExpressionKind {
    /// A constant, normalised to its type. A 0 of type string is the string NULL, which only assignments to elements of
    /// arrays have: it frees the element.
    Integer(i64),
    /// A constant string, without NUL.
    String(String),
    /// A variable that the tracer provides.
    Builtin(Builtin),
    /// `uregs[index]`; the index is an expression (usually a constant `R_...`).
    Register(Box<Expression>),
    /// The value of a variable.
    Variable(Place),
    /// An operator and its operand, which has the type of the result (but for `!`).
    Unary {
        /// The operator.
        operator: UnaryOperator,
        /// The operand.
        operand: Box<Expression>,
    },
    /// Both operands have the same type by now (but for shifts); comparisons yield `int` 0 or 1. Strings: comparisons
    /// only.
    Binary {
        /// The operator.
        operator: BinaryOperator,
        /// The left operand.
        left: Box<Expression>,
        /// The right operand.
        right: Box<Expression>,
    },
    /// `&&`, `||`, `^^`: short-circuit but for `^^`; `int` 0 or 1.
    Logical {
        /// The operator.
        operator: LogicalOperator,
        /// The left operand.
        left: Box<Expression>,
        /// The right operand.
        right: Box<Expression>,
    },
    /// `condition ? then : otherwise`: both of the type of the result, only one evaluated.
    Conditional {
        /// An integer or a pointer.
        condition: Box<Expression>,
        /// The value when it is not zero.
        then: Box<Expression>,
        /// The value when it is zero.
        otherwise: Box<Expression>,
    },
    /// Integer to integer (truncate, then extend by the new type), pointer to and from integer, or `Bytes`/pointer to
    /// `String` (`stringof`: for `Bytes` the scratch bytes as they are, for a pointer or integer as `copyinstr`).
    Cast(Box<Expression>),
    /// Stores `value` (already of the place's type) and yields it.
    Assign {
        /// What is assigned.
        place: Place,
        /// The value.
        value: Box<Expression>,
    },
    /// `place op= value`: reads, computes, converts back, stores, yields the new value. It is computed in the type of
    /// `value`, which is the common type of both sides; a shift is computed in the promoted type of the place, and
    /// `value` has its own. Of a pointer the value is an `uint64_t`, already in bytes.
    AssignOperator {
        /// What is assigned.
        place: Place,
        /// The operator.
        operator: BinaryOperator,
        /// The value.
        value: Box<Expression>,
    },
    /// `++`/`--`: adds `delta` (pointer steps included); yields the new value, or the old one when `post`.
    Increment {
        /// What is assigned.
        place: Place,
        /// What is added.
        delta: i64,
        /// Whether the old value is the result.
        post: bool,
    },
    /// `a, b`.
    Comma {
        /// Evaluated for its effects.
        first: Box<Expression>,
        /// The result.
        second: Box<Expression>,
    },
    /// A subroutine; its arguments are already of the types it takes: addresses and sizes are `uint64_t`.
    Call {
        /// Which.
        function: Function,
        /// In order.
        arguments: Vec<Expression>,
    },
    /// Reads the target's memory: an integer of the expression's type at an address.
    Load(Box<Expression>),
}

/// Something that can be assigned to.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// A variable.
    Scalar {
        /// Whose.
        scope: Scope,
        /// Which.
        variable: VariableId,
    },
    /// An element of an associative array. Integer keys count with their 64 bits, extended by their own types.
    Element {
        /// Whose.
        scope: Scope,
        /// Which.
        variable: VariableId,
        /// As many as the array has: integers and strings.
        keys: Vec<Expression>,
    },
}

/// Whom a variable belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All threads.
    Global,
    /// `self->`: one thread.
    ThreadLocal,
    /// `this->`: one firing of a probe.
    ClauseLocal,
}

/// A variable that the tracer provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// `arg0` .. `arg9`: at an entry the function's integer arguments; at a return `arg0` is the offset of the exit and
    /// `arg1` the value returned. Type: int64_t.
    Argument(u8),
    /// `pid`: of the target.
    Pid,
    /// `tid`: of the thread.
    Tid,
    /// `ppid`: of the target's parent.
    Ppid,
    /// `uid`: real.
    Uid,
    /// `gid`: real.
    Gid,
    /// `execname`.
    ExecName,
    /// `cpu`: the number of the CPU.
    Cpu,
    /// `probeprov`.
    ProbeProvider,
    /// `probemod`.
    ProbeModule,
    /// `probefunc`.
    ProbeFunction,
    /// `probename`.
    ProbeName,
    /// `timestamp`: ns since some point.
    Timestamp,
    /// `vtimestamp`: ns that the thread has run.
    VirtualTimestamp,
    /// `walltimestamp`: ns since the epoch.
    WallTimestamp,
    /// `ucaller`: the address that the function returns to.
    UserCaller,
    /// The id of the enabled probe; the id of the probe.
    EnabledProbeId,
    /// `id`.
    ProbeId,
    /// `$target`, where it is not a constant yet. `errno` is refused for now; kept out.
    TargetPid,
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
