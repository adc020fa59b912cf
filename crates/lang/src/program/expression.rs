//! Expressions: the values that a clause computes, and the places where it keeps them.
//!
//! Each node has the type of its value. The head of [`super`] describes the rules of the operators.

use super::{BinaryOperator, Function, LogicalOperator, OtherPart, Stack, Type, UnaryOperator, VariableId};
use crate::source::Span;

/// A value to compute.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    pub kind: ExpressionKind,
    /// The type of the value.
    pub value_type: Type,
    pub span: Span,
}

/// The kinds of expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ExpressionKind {
    /// A constant, normalised to its type. A 0 of type string is the string NULL.
    Integer(i64),
    /// A constant string, without its NUL.
    String(Vec<u8>),
    /// A variable that the tracer provides.
    Builtin(Builtin),
    /// `uregs[index]`; the index is an expression (usually a constant `R_...`).
    Register(Box<Expression>),
    /// The value of a variable.
    Variable(Place),
    /// An operator and its operand, which has the type of the result (except for `!`).
    Unary {
        operator: UnaryOperator,
        operand: Box<Expression>,
    },
    /// Both operands already have the same type (except for shifts). Comparisons yield an `int`, 0
    /// or 1. Strings can only be compared.
    Binary {
        operator: BinaryOperator,
        left: Box<Expression>,
        right: Box<Expression>,
    },
    /// `&&`, `||`, `^^`: `int` 0 or 1. The first two skip the right operand if the left one decides.
    Logical {
        operator: LogicalOperator,
        left: Box<Expression>,
        right: Box<Expression>,
    },
    /// `condition ? then : otherwise`: both have the type of the result, and only one is evaluated.
    Conditional {
        /// An integer or a pointer.
        condition: Box<Expression>,
        /// The value when it is not zero.
        then: Box<Expression>,
        /// The value when it is zero.
        otherwise: Box<Expression>,
    },
    /// Integer to integer: truncates, then extends by the new type. Pointer to and from integer. `Bytes`
    /// or pointer to `String` (`stringof`): for `Bytes` the scratch bytes themselves, and for a pointer or
    /// integer as `copyinstr`. `String` to `uint64_t`: the address of its bytes, valid until the clause ends.
    Cast(Box<Expression>),
    /// The result of an operation, computed in 64 bits, as a value of its C type: cut and extended
    /// as by a cast. Operators use their operands before this cut.
    Narrow(Box<Expression>),
    /// Stores `value` (already of the place's type) and yields it.
    Assign { place: Place, value: Box<Expression> },
    /// `place op= value`: reads, computes in 64 bits, converts back, stores, and yields the new value.
    /// The operation is signed if the common type of both sides is signed; for a shift, if the type of
    /// the place is. For a pointer the value is an `uint64_t`, already in bytes.
    AssignOperator {
        place: Place,
        operator: BinaryOperator,
        value: Box<Expression>,
    },
    /// `++`/`--`: adds `delta` (for a pointer already in bytes). Yields the new value, or the old one with `post`.
    Increment {
        place: Place,
        /// The number that is added.
        delta: i64,
        /// Whether the result is the old value.
        post: bool,
    },
    /// `a, b`.
    Comma {
        /// The expression that is evaluated only for its effects.
        first: Box<Expression>,
        second: Box<Expression>,
    },
    /// A call of a subroutine. Its arguments already have the types of its parameters: addresses and sizes
    /// are `uint64_t`.
    Call {
        function: Function,
        arguments: Vec<Expression>,
    },
    /// Reads the target's memory: an integer of the expression's type at an address.
    Load(Box<Expression>),
}

/// A place that can be assigned.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    Scalar {
        scope: Scope,
        variable: VariableId,
    },
    /// An element of an associative array. An integer key is its 64 bits, extended by its own type.
    Element {
        scope: Scope,
        variable: VariableId,
        /// As many keys as the array has: integers and strings. A structure counts as its words.
        keys: Vec<Expression>,
    },
    /// An integer within a scalar variable of type `Bytes`: a member of a structure, an element of an array.
    Field {
        scope: Scope,
        variable: VariableId,
        /// The offset in bytes from the variable's start, an `uint64_t`. At run time, an offset after the
        /// variable's end is a bad address.
        offset: Box<Expression>,
        /// The type at that offset: an integer or a pointer.
        value_type: Type,
    },
    /// An integer in scratch memory (`*p = value` where `p` comes from `alloca`). At run time, a store
    /// anywhere else is a bad address.
    Memory {
        /// The address, an `uint64_t`.
        address: Box<Expression>,
        /// The type at that address: an integer or a pointer.
        value_type: Type,
    },
}

/// The scope of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Global,
    /// `self->`: one thread.
    ThreadLocal,
    /// `this->`: one firing of a probe.
    ClauseLocal,
}

/// A variable that the tracer provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// `arg0` .. `arg9`: at an entry the function's integer arguments; at a return `arg0` is the
    /// offset of the exit and `arg1` the value returned. Type: int64_t.
    Argument(u8),
    /// `pid`: the number of the target.
    Pid,
    /// `tid`: the number of the thread.
    Tid,
    /// `ppid`: the number of the target's parent.
    Ppid,
    /// `uid`: the real user.
    Uid,
    /// `gid`: the real group.
    Gid,
    /// `curpsinfo->pr_euid`: the effective user.
    EffectiveUid,
    /// `curpsinfo->pr_egid`: the effective group.
    EffectiveGid,
    /// `curlwpsinfo->pr_syscall`: the system call in which the thread sleeps; -1: none is known.
    SystemCall,
    /// `args[0]->pr_lwpid` and its like in clauses of `sched`: the thread that is woken, or that runs next.
    Other(OtherPart),
    /// `curpsinfo->pr_pgid`: the process group.
    ProcessGroup,
    /// `curpsinfo->pr_sid`: the session.
    ProcessSession,
    /// `execname`.
    ExecName,
    /// `curpsinfo->pr_psargs`: the command line, cut as by DTrace.
    ProcessArguments,
    /// `curpsinfo->pr_argc`: how many arguments the program was started with.
    StartArgumentCount,
    /// `curpsinfo->pr_argv`: the address of the pointers to these arguments.
    StartArguments,
    /// `curpsinfo->pr_envp`: the address of the pointers to the environment that the program was started with.
    StartEnvironment,
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
    /// `timestamp`: ns since boot.
    Timestamp,
    /// `vtimestamp`: ns that the thread has run.
    VirtualTimestamp,
    /// `walltimestamp`: ns since the epoch.
    WallTimestamp,
    /// `ucaller`: the address that the function returns to.
    UserCaller,
    /// `errno`: the thread's present value in its C library.
    Errno,
    /// `goid`: the number of the goroutine that the thread runs; 0: it runs none.
    Goroutine,
    /// `ustackdepth`: how many frames the thread's stack has.
    UserStackDepth,
    /// `ustack(frames)` or `stack(frames)` as an argument of `printf`, recorded as a stack. It is the only expression
    /// without a value that is recorded.
    Stack(Stack),
    /// `epid`: the number of the probe and the clause together.
    EnabledProbeId,
    /// `id`: the number of the probe.
    ProbeId,
    /// `$target`, where the process is not known at compile time.
    TargetPid,
}

impl Expression {
    /// Whether the expression is `probefunc` itself, whose value is the name of a function.
    #[must_use]
    pub fn is_function_name(&self) -> bool {
        matches!(self.kind, ExpressionKind::Builtin(Builtin::ProbeFunction))
    }

    /// The operands of the expression, and those of its place.
    #[must_use]
    pub fn operands(&self) -> Vec<&Expression> {
        let mut found: Vec<&Expression> = Vec::new();
        match &self.kind {
            ExpressionKind::Integer(_) | ExpressionKind::String(_) | ExpressionKind::Builtin(_) => {}
            ExpressionKind::Variable(target) | ExpressionKind::Increment { place: target, .. } => {
                found.extend(target.operands());
            }
            ExpressionKind::Register(one)
            | ExpressionKind::Unary { operand: one, .. }
            | ExpressionKind::Cast(one)
            | ExpressionKind::Narrow(one)
            | ExpressionKind::Load(one) => found.push(one),
            ExpressionKind::Binary { left, right, .. }
            | ExpressionKind::Logical { left, right, .. }
            | ExpressionKind::Comma {
                first: left,
                second: right,
            } => found.extend([left.as_ref(), right]),
            ExpressionKind::Conditional {
                condition,
                then,
                otherwise,
            } => found.extend([condition.as_ref(), then, otherwise]),
            ExpressionKind::Assign { place: target, value }
            | ExpressionKind::AssignOperator {
                place: target, value, ..
            } => {
                found.extend(target.operands());
                found.push(value);
            }
            ExpressionKind::Call { arguments, .. } => found.extend(arguments),
        }
        found
    }

    /// The first part that needs the option `destructive`, and where it is.
    #[must_use]
    pub fn destructive(&self) -> Option<(&'static str, Span)> {
        match &self.kind {
            ExpressionKind::Call { function, .. } if function.is_destructive() => Some((function.name(), self.span)),
            _ => self.operands().into_iter().find_map(Expression::destructive),
        }
    }
}

impl Place {
    /// The keys of an element; for a place in memory or in a variable, its address or offset.
    #[must_use]
    pub fn operands(&self) -> &[Expression] {
        match self {
            Place::Scalar { .. } => &[],
            Place::Element { keys, .. } => keys,
            Place::Memory { address: inner, .. } | Place::Field { offset: inner, .. } => std::slice::from_ref(inner),
        }
    }
}
