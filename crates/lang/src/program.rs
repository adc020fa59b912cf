//! The program form: what the front end hands to the code generator and to the interpreter.
//!
//! Everything is resolved: names are indices, every expression carries its type, implicit conversions are explicit
//! [`ExpressionKind::Cast`]s, compound assignments and increments are explicit nodes. Nothing here knows a process.
//!
//! Integer semantics: a value of an integer type is held in 64 bits, sign- or zero-extended from its width according to
//! its type; every operation yields a value normalised to its result type. Arithmetic wraps. Shifts use the low 6 bits
//! (5 for 32-bit types) of the count. Division and remainder by zero are the run-time fault "divide by zero";
//! `MIN / -1` yields `MIN`, `MIN % -1` yields 0.

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
    /// In the order of the text: clauses on one probe are carried out in this order.
    pub clauses: Vec<Clause>,
    /// Shared by all threads; indexed by [`VariableId`].
    pub globals: Vec<Variable>,
    /// `self->`: one for each thread.
    pub thread_locals: Vec<Variable>,
    /// `this->`: they live as long as one firing of a probe, across its clauses. Names with a `%` are the front end's
    /// own.
    pub clause_locals: Vec<Variable>,
    /// Indexed by [`AggregationId`].
    pub aggregations: Vec<Aggregation>,
    /// `#pragma D option name[=value]`, in order of appearance.
    pub pragmas: Vec<Pragma>,
}

/// `#pragma D option name[=value]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pragma {
    /// As written; known to [`crate::options::Options`].
    pub name: String,
    /// After the `=`, quotes removed.
    pub value: Option<String>,
    /// Where.
    pub span: Span,
}

/// One clause: its probes, its condition, what it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    /// At least one.
    pub probes: Vec<ProbeDescription>,
    /// Evaluated first; zero ends the clause.
    pub predicate: Option<Expression>,
    /// Carried out in order, until one faults.
    pub statements: Vec<Statement>,
    /// Where.
    pub span: Span,
}

impl Clause {
    /// Whether firing this clause writes a record: it has a data-recording action, or has no statement at all (then a
    /// bare record makes the consumer print the probe's columns).
    pub fn records(&self) -> bool {
        self.statements.is_empty() || self.statements.iter().any(|s| matches!(s, Statement::Record(_)))
    }
}

/// `provider:module:function:name` with globs; an empty field matches all. Macro arguments are already replaced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbeDescription {
    /// `pid1234`, `profile`, ...
    pub provider: String,
    /// The library or program.
    pub module: String,
    /// The function.
    pub function: String,
    /// `entry`, `return`, an offset, `tick-1s`, ...
    pub name: String,
    /// Where.
    pub span: Span,
}

/// A variable of the program's.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// As written, without `self->` or `this->`.
    pub name: String,
    /// The type of the value (of an element, for an associative array).
    pub value_type: Type,
    /// The types of the keys of an associative array; `None` for a scalar.
    pub keys: Option<Vec<Type>>,
}

/// An aggregation: its function and what its keys are made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregation {
    /// With its `@`; the nameless one is `@`.
    pub name: String,
    /// The same at every assignment.
    pub function: AggregatingFunction,
    /// The kinds of its key's elements. Integers have the narrowest type that prints the keys of all assignments; the
    /// keys themselves are 64 bits wide and extended by their own types.
    pub keys: Vec<KeyType>,
}

/// An aggregating function with its constant parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AggregatingFunction {
    /// `count()`.
    Count,
    /// `sum(value)`.
    Sum,
    /// `avg(value)`.
    Average,
    /// `min(value)`.
    Minimum,
    /// `max(value)`.
    Maximum,
    /// `stddev(value)`.
    StandardDeviation,
    /// `quantize(value[, weight])`: buckets are powers of two.
    Quantize,
    /// Buckets [base, limit) by step.
    LinearQuantize {
        /// Lowest value.
        base: i32,
        /// First value above.
        limit: i32,
        /// Width of a bucket.
        step: u16,
    },
    /// `llquantize(value, factor, low, high, steps[, weight])`: every power of `factor` from `low` to `high` in
    /// `steps` steps.
    LogLinearQuantize {
        /// The base of the magnitudes.
        factor: u16,
        /// The lowest magnitude.
        low: u16,
        /// The highest magnitude.
        high: u16,
        /// Buckets in a magnitude.
        steps: u16,
    },
}

impl AggregatingFunction {
    /// The parameters packed as DTrace packs them, for `np_lquantize` and `np_llquantize`: step << 48 | levels << 32 |
    /// base (as u32); factor << 48 | low << 32 | high << 16 | steps. 0 for the others.
    pub fn packed_parameters(self) -> u64 {
        match self {
            Self::LinearQuantize { base, step, .. } => {
                (u64::from(step) << 48) | (u64::from(self.levels()) << 32) | u64::from(base as u32)
            }
            Self::LogLinearQuantize {
                factor,
                low,
                high,
                steps,
            } => (u64::from(factor) << 48) | (u64::from(low) << 32) | (u64::from(high) << 16) | u64::from(steps),
            _ => 0,
        }
    }

    /// Number of steps between base and limit of an `lquantize`; 0 for the others.
    pub fn levels(self) -> u16 {
        match self {
            Self::LinearQuantize { base, limit, step } => {
                let range = i64::from(limit) - i64::from(base);
                u16::try_from(range / i64::from(step)).unwrap_or(u16::MAX)
            }
            _ => 0,
        }
    }
}

/// The type of one element of an aggregation's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// An integer.
    Integer(IntegerType),
    /// A string.
    String,
    /// `ustack(frames)`; frames 0: the option `ustackframes`.
    UserStack {
        /// At most so many; 0: as the option says.
        frames: u32,
    },
    /// An address printed as a symbol (`ucaller` stays an integer; this is for `usym`, `umod`, `uaddr`, later).
    Symbol,
}

/// A type of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntegerType {
    /// 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether it has negative values.
    pub signed: bool,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// No value: an action used as a statement.
    Void,
    /// An integer.
    Integer(IntegerType),
    /// A D string: at most `strsize` bytes with its NUL.
    String,
    /// An address in the target; what it points to is for later (`None`: void).
    Pointer(Option<Box<Type>>),
    /// An address of bytes in scratch memory, as `copyin` gives it; constant size where known.
    Bytes {
        /// Bytes, where the text says it.
        size: Option<u32>,
    },
}

impl Type {
    /// `int64_t`
    pub const I64: Type = Type::Integer(IntegerType { bytes: 8, signed: true });
    /// `uint64_t`
    pub const U64: Type = Type::Integer(IntegerType {
        bytes: 8,
        signed: false,
    });
    /// `int`
    pub const I32: Type = Type::Integer(IntegerType { bytes: 4, signed: true });
    /// `uint32_t`
    pub const U32: Type = Type::Integer(IntegerType {
        bytes: 4,
        signed: false,
    });
}

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
}

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
    /// A constant, normalised to its type.
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

/// Operators with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOperator {
    /// `-`
    Negate,
    /// `~`
    Complement,
    /// `!`: int 0 or 1; of a string: whether it is empty.
    Not,
}

/// Operators with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Remainder,
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `<<`
    ShiftLeft,
    /// Arithmetic for signed left operands, logical otherwise.
    ShiftRight,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// Operators on truth values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogicalOperator {
    /// `&&`
    And,
    /// `||`
    Or,
    /// `^^`
    Xor,
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
