//! Expressions: what a clause computes, and the places where it keeps it.
//!
//! Each node has the type of its value. The head of [`super`] has the rules of the operators.

use super::{BinaryOperator, LogicalOperator, Type, UnaryOperator, VariableId};
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
    /// A constant string, without NUL.
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
    /// Integer to integer (truncate, then extend by the new type); pointer to and from integer; or
    /// `Bytes`/pointer to `String` (`stringof`: the scratch bytes themselves for `Bytes`, and as
    /// `copyinstr` for a pointer or integer). `String` to `uint64_t` is the address of its bytes,
    /// valid until the clause ends.
    Cast(Box<Expression>),
    /// The result of an operation, computed in 64 bits, as a value of its C type: cut and extended
    /// as by a cast. Operators use their operands before this cut.
    Narrow(Box<Expression>),
    /// Stores `value` (already of the place's type) and yields it.
    Assign { place: Place, value: Box<Expression> },
    /// `place op= value`: reads, computes in 64 bits, converts back, stores, yields the new value.
    /// The operation is signed if the common type of both sides is, or for a shift if the type of
    /// the place is. For a pointer the value is an `uint64_t`, already in bytes.
    AssignOperator {
        place: Place,
        operator: BinaryOperator,
        value: Box<Expression>,
    },
    /// `++`/`--`: adds `delta` (pointer steps included); yields the new value, or the old one when `post`.
    Increment {
        place: Place,
        /// What is added.
        delta: i64,
        /// Whether the result is the old value.
        post: bool,
    },
    /// `a, b`.
    Comma {
        /// Evaluated for its effects.
        first: Box<Expression>,
        second: Box<Expression>,
    },
    /// A subroutine. Its arguments already have the types of its parameters: addresses and
    /// sizes are `uint64_t`.
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
        /// As many as the array has: integers and strings. A structure is its words.
        keys: Vec<Expression>,
    },
    /// An integer within a scalar variable of type `Bytes`: a member of a structure, an element of an array.
    Field {
        scope: Scope,
        variable: VariableId,
        /// From the variable's start, in bytes: an `uint64_t`. An offset after its end is a bad
        /// address, at run time.
        offset: Box<Expression>,
        /// The type there: an integer or a pointer.
        value_type: Type,
    },
    /// An integer in scratch memory (`*p = value` where `p` comes from `alloca`). A store anywhere
    /// else is a bad address, at run time.
    Memory {
        /// An `uint64_t`.
        address: Box<Expression>,
        /// The type there: an integer or a pointer.
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
    /// `pid`: of the target.
    Pid,
    /// `tid`: of the thread.
    Tid,
    /// `ppid`: the number of the target's parent.
    Ppid,
    /// `uid`: real.
    Uid,
    /// `gid`: real.
    Gid,
    /// `curpsinfo->pr_euid`: the effective user.
    EffectiveUid,
    /// `curpsinfo->pr_egid`: the effective group.
    EffectiveGid,
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
    /// `curpsinfo->pr_argv`: the address of the pointers to them.
    StartArguments,
    /// `curpsinfo->pr_envp`: the address of the pointers to the environment that it was started with.
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
    /// `timestamp`: ns since some point.
    Timestamp,
    /// `vtimestamp`: ns that the thread has run.
    VirtualTimestamp,
    /// `walltimestamp`: ns since the epoch.
    WallTimestamp,
    /// `ucaller`: the address that the function returns to.
    UserCaller,
    /// `errno`: the thread's, as its C library has it at that moment.
    Errno,
    /// `goid`: the number of the goroutine that the thread runs; 0: none.
    Goroutine,
    /// `ustackdepth`: how many frames the thread's stack has.
    UserStackDepth,
    /// `ustack(frames)` as an argument of `printf`: the only expression without a value that is
    /// recorded. It is recorded as a stack. No frames given: 0.
    UserStack(u32),
    /// The id of the enabled probe; the id of the probe.
    EnabledProbeId,
    /// `id`.
    ProbeId,
    /// `$target`, if it is not a constant yet.
    TargetPid,
}

/// A subroutine that yields a value. Strings are `String`, numbers `int64_t`, addresses and sizes
/// `uint64_t`. Optional arguments that D lets a program omit are filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `copyin(address, size)` -> `Bytes`.
    CopyIn,
    /// `copyinstr(address[, size])` -> `String`; here the size may be absent.
    CopyInString,
    /// `strlen(string)` -> size_t.
    StringLength,
    /// `alloca(size)` -> `void *`: zeros in scratch memory.
    Allocate,
    /// `copyinto(address, size, destination)`, and `bcopy` with its arguments in this order; the
    /// result is void.
    CopyInTo,
    /// `strjoin(left, right)` -> `String`.
    StringJoin,
    /// `strchr(string, character)` -> `String`.
    StringCharacter,
    /// `strrchr(string, character)` -> `String`.
    StringLastCharacter,
    /// `strstr(string, wanted)` -> `String`.
    StringSearch,
    /// `strtok(state, separators)` -> `String`: takes the token off a clause-local string variable.
    StringToken,
    /// `substr(string, index, count)` -> `String`.
    Substring,
    /// `index(string, wanted, position)` -> int.
    Index,
    /// `rindex(string, wanted, position)` -> int.
    LastIndex,
    /// `toupper(string)` -> `String`.
    UpperCase,
    /// `tolower(string)` -> `String`.
    LowerCase,
    /// `basename(path)` -> `String`.
    BaseName,
    /// `dirname(path)` -> `String`.
    DirectoryName,
    /// `cleanpath(path)` -> `String`.
    CleanPath,
    /// `lltostr(number, base)` -> `String`.
    NumberToString,
    /// `strtoll(string, base)` -> int64_t.
    StringToNumber,
    /// `inet_ntop(family, address)` -> `String`; `inet_ntoa` is this with a constant family.
    AddressToString,
    /// `inet_ntoa6(address)` -> `String`.
    AddressToString6,
    /// `link_ntop(type, address)` -> `String`.
    LinkToString,
    /// `htons`, `ntohs` -> uint16_t: the bytes of the number in reverse order.
    Swap16,
    /// `htonl`, `ntohl` -> uint32_t.
    Swap32,
    /// `htonll`, `ntohll` -> uint64_t.
    Swap64,
    /// `rand()` -> int.
    Random,
    /// `json(text, path)` -> `String`.
    Json,
    /// `progenyof(pid)` -> int: whether the process or one of its ancestors has this number.
    ProgenyOf,
    /// `fds[descriptor].fi_pathname` -> `String`: [`CURRENT_FOLDER`] is `cwd`, [`ROOT_FOLDER`] is `root`.
    Path,
    /// `threadname` -> `String`.
    ThreadName,
    /// `speculation()` -> int: the number of a free speculation, 0: none.
    Speculation,
    /// `copyout(buffer, address, size)`: from scratch memory to the target's memory.
    CopyOut,
    /// `copyoutstr(string, address, size)`: at most `size` bytes of the string and its NUL.
    CopyOutString,
}

/// The descriptor by which [`Function::Path`] means the current directory: `AT_FDCWD`.
pub const CURRENT_FOLDER: i64 = -100;
/// And the root folder.
pub const ROOT_FOLDER: i64 = -101;

impl Expression {
    /// The operands, and those of the place.
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
    /// The keys of an element; for a place in memory, its address or offset.
    #[must_use]
    pub fn operands(&self) -> &[Expression] {
        match self {
            Place::Scalar { .. } => &[],
            Place::Element { keys, .. } => keys,
            Place::Memory { address: inner, .. } | Place::Field { offset: inner, .. } => std::slice::from_ref(inner),
        }
    }
}

impl Function {
    /// Whether it changes the target.
    #[must_use]
    pub fn is_destructive(self) -> bool {
        matches!(self, Function::CopyOut | Function::CopyOutString)
    }

    /// Its name in D; the first one, if several names share it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Function::CopyIn => "copyin",
            Function::CopyInString => "copyinstr",
            Function::StringLength => "strlen",
            Function::Allocate => "alloca",
            Function::CopyInTo => "copyinto",
            Function::StringJoin => "strjoin",
            Function::StringCharacter => "strchr",
            Function::StringLastCharacter => "strrchr",
            Function::StringSearch => "strstr",
            Function::StringToken => "strtok",
            Function::Substring => "substr",
            Function::Index => "index",
            Function::LastIndex => "rindex",
            Function::UpperCase => "toupper",
            Function::LowerCase => "tolower",
            Function::BaseName => "basename",
            Function::DirectoryName => "dirname",
            Function::CleanPath => "cleanpath",
            Function::NumberToString => "lltostr",
            Function::StringToNumber => "strtoll",
            Function::AddressToString => "inet_ntop",
            Function::AddressToString6 => "inet_ntoa6",
            Function::LinkToString => "link_ntop",
            Function::Swap16 => "htons",
            Function::Swap32 => "htonl",
            Function::Swap64 => "htonll",
            Function::Random => "rand",
            Function::Json => "json",
            Function::ProgenyOf => "progenyof",
            Function::Path => "fds[]",
            Function::ThreadName => "threadname",
            Function::Speculation => "speculation",
            Function::CopyOut => "copyout",
            Function::CopyOutString => "copyoutstr",
        }
    }

    /// The types of the arguments, and how many there must be.
    #[must_use]
    pub fn parameters(self) -> (&'static [Parameter], usize) {
        use Parameter::{Address, Number, Text};
        let all: &[Parameter] = match self {
            Function::CopyIn => &[Address, Address],
            Function::CopyInString => return (&[Address, Address], 1),
            Function::CopyInTo | Function::CopyOut => &[Address, Address, Address],
            Function::CopyOutString => &[Text, Address, Address],
            Function::ProgenyOf | Function::Path => &[Number],
            Function::Allocate => &[Address],
            Function::StringJoin | Function::StringSearch | Function::StringToken | Function::Json => &[Text, Text],
            Function::StringCharacter | Function::StringLastCharacter => &[Text, Number],
            Function::Substring => &[Text, Number, Number],
            Function::Index | Function::LastIndex => &[Text, Text, Number],
            Function::StringLength
            | Function::UpperCase
            | Function::LowerCase
            | Function::BaseName
            | Function::DirectoryName
            | Function::CleanPath => &[Text],
            Function::NumberToString => &[Number, Number],
            Function::StringToNumber => &[Text, Number],
            Function::AddressToString | Function::LinkToString => &[Number, Address],
            Function::AddressToString6 => &[Address],
            Function::Swap16 | Function::Swap32 | Function::Swap64 => &[Number],
            Function::Random | Function::Speculation | Function::ThreadName => &[],
        };
        (all, all.len())
    }

    /// Whether it yields a string.
    #[must_use]
    pub fn yields_string(self) -> bool {
        matches!(
            self,
            Function::CopyInString
                | Function::StringJoin
                | Function::StringCharacter
                | Function::StringLastCharacter
                | Function::StringSearch
                | Function::StringToken
                | Function::Substring
                | Function::UpperCase
                | Function::LowerCase
                | Function::BaseName
                | Function::DirectoryName
                | Function::CleanPath
                | Function::NumberToString
                | Function::AddressToString
                | Function::AddressToString6
                | Function::LinkToString
                | Function::Path
                | Function::ThreadName
                | Function::Json
        )
    }
}

/// The kind of an argument of a subroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parameter {
    Text,
    /// A number: `int64_t`.
    Number,
    /// An address, or a number of bytes: `uint64_t`.
    Address,
}
