//! The names that every program knows: variables, registers, functions. Also the names of D that
//! nanoprobe does not support yet.

use super::subroutine_table::{subroutine, subroutine_names};
use crate::program::{
    AGGREGATING, BUILTINS, Builtin, CURRENT_FOLDER, Function, IntegerType, ROOT_FOLDER, Type, builtin_row,
};

pub(super) const UNSIGNED: IntegerType = IntegerType {
    bytes: 4,
    signed: false,
};

/// A variable that the tracer provides, and its type.
pub(super) fn builtin(name: &str) -> Option<(Builtin, Type)> {
    if let Some(digit) = name.strip_prefix("arg").and_then(|rest| rest.parse::<u8>().ok()) {
        return (digit <= 9 && name.len() == 4).then_some((Builtin::Argument(digit), Type::I64));
    }
    // Names with an arrow have rows, too, but they are looked up by `information`.
    let row = builtin_row(name).filter(|_| !name.contains("->"))?;
    Some((row.builtin, row.value_type()))
}

/// The value of `PR_MODEL_LP64`.
pub(super) const LP64: i64 = 2;

/// The variable that is a member of one of DTrace's structures about the process, the thread or the
/// CPU, such as `curpsinfo->pr_fname`. `None`: there is no such structure; `Some(None)`: no such member.
pub(super) fn information(variable: &str, member: &str) -> Option<Option<(Builtin, Type)>> {
    if !matches!(variable, "curpsinfo" | "curlwpsinfo" | "curcpu") {
        return None;
    }
    let row = builtin_row(&format!("{variable}->{member}"));
    Some(row.map(|row| (row.builtin, row.value_type())))
}

/// `PR_MODEL_...`: data models. All processes here have the same one, `curpsinfo->pr_dmodel`.
pub(super) fn data_model(name: &str) -> Option<i64> {
    Some(match name {
        "PR_MODEL_UNKNOWN" => 0,
        "PR_MODEL_ILP32" => 1,
        "PR_MODEL_LP64" => LP64,
        _ => return None,
    })
}

/// For a variable whose value is a string from the kernel: the function that gets it, and the function's argument.
pub(super) fn asked_for(name: &str) -> Option<(Function, Option<i64>)> {
    Some(match name {
        "cwd" => (Function::Path, Some(CURRENT_FOLDER)),
        "root" => (Function::Path, Some(ROOT_FOLDER)),
        "threadname" => (Function::ThreadName, None),
        _ => return None,
    })
}

/// What a member of `fds[n]` is.
pub(super) enum OfFile {
    /// The path, or what a function takes from it.
    Path(Option<Function>),
    /// A part of [`Function::FileSystem`].
    FileSystem(i64),
}

/// A member of `fds[n]`.
pub(super) fn of_file(member: &str) -> Option<OfFile> {
    Some(match member {
        "fi_pathname" => OfFile::Path(None),
        "fi_name" => OfFile::Path(Some(Function::BaseName)),
        "fi_dirname" => OfFile::Path(Some(Function::DirectoryName)),
        "fi_fs" => OfFile::FileSystem(0),
        "fi_mount" => OfFile::FileSystem(1),
        _ => return None,
    })
}

/// Whether D defines a variable of this name.
pub(super) fn is_variable(name: &str) -> bool {
    name == "ipl" || builtin(name).is_some() || asked_for(name).is_some() || missing_variable(name).is_some()
}

/// Variables of D that nanoprobe does not have, and what to use instead.
pub(super) fn missing_variable(name: &str) -> Option<&'static str> {
    Some(match name {
        "curthread" => "use pid, tid, execname, uid, gid, cpu",
        "curpsinfo" => "use its members: curpsinfo->pr_psargs, pr_fname, pr_pid, pr_ppid, pr_uid, pr_euid, ...",
        "curlwpsinfo" | "curcpu" => {
            "these members exist: curlwpsinfo->pr_lwpid, pr_onpro and pr_syscall, curcpu->cpu_id"
        }
        "caller" => "use ucaller",
        "stackdepth" => "use ustackdepth; the kernel's stack is stack( ), in clauses of profile-N and sched",
        "fds" => "these members exist: fds[n].fi_pathname, fi_name, fi_dirname, fi_fs, fi_mount",
        "usermode" => "in a profile- clause arg1 is not 0 when the thread was in the program",
        "vmregs" => "the program's registers are uregs[R_RAX], ...",
        "zonename" | "jid" | "jailname" => "there are no zones and no jails here",
        "vcycles" | "vinstr" => "vtimestamp is the thread's time",
        _ => return None,
    })
}

/// `R_...`: the index of a register in `uregs[]`, numbered as in DTrace on x86-64 (sys/regset.h). The
/// names for the program counter, the stack pointer and so on exist, too. As in DTrace, a name of a
/// 32-bit register means the whole register.
pub(super) fn register(name: &str) -> Option<i64> {
    let name = name.strip_prefix("R_")?;
    const REGISTERS: [&str; 28] = [
        "R15", "R14", "R13", "R12", "R11", "R10", "R9", "R8", "RDI", "RSI", "RBP", "RBX", "RDX", "RCX", "RAX",
        "TRAPNO", "ERR", "RIP", "CS", "RFL", "RSP", "SS", "FS", "GS", "ES", "DS", "FSBASE", "GSBASE",
    ];
    let name = match name {
        "PC" => "RIP",
        "SP" => "RSP",
        "FP" | "EBP" => "RBP",
        "PS" | "RFLAGS" | "EFL" => "RFL",
        "R0" | "EAX" => "RAX",
        "R1" | "EBX" => "RBX",
        "ECX" => "RCX",
        "EDX" => "RDX",
        "ESI" => "RSI",
        "EDI" => "RDI",
        "EIP" => "RIP",
        "ESP" | "UESP" => "RSP",
        _ => name,
    };
    REGISTERS
        .iter()
        .position(|register| *register == name)
        .and_then(|index| i64::try_from(index).ok())
}

/// `SIG...`: the numbers of Linux on x86-64.
pub(super) fn signal(name: &str) -> Option<i64> {
    let name = name.strip_prefix("SIG")?;
    const SIGNALS: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    let name = match name {
        "CLD" => "CHLD",
        "IOT" => "ABRT",
        "POLL" => "IO",
        _ => name,
    };
    let index = SIGNALS.iter().position(|signal| *signal == name)?;
    i64::try_from(index + 1).ok()
}

/// `E...`: the numbers of Linux's errors on x86-64. 41 and 58 are not assigned.
pub(super) fn error(name: &str) -> Option<i64> {
    let name = name.strip_prefix('E').filter(|name| *name != "-")?;
    const ERRORS: &str = "PERM NOENT SRCH INTR IO NXIO 2BIG NOEXEC BADF CHILD AGAIN NOMEM ACCES FAULT NOTBLK BUSY EXIST XDEV \
        NODEV NOTDIR ISDIR INVAL NFILE MFILE NOTTY TXTBSY FBIG NOSPC SPIPE ROFS MLINK PIPE DOM RANGE DEADLK \
        NAMETOOLONG NOLCK NOSYS NOTEMPTY LOOP - NOMSG IDRM CHRNG L2NSYNC L3HLT L3RST LNRNG UNATCH NOCSI \
        L2HLT BADE BADR XFULL NOANO BADRQC BADSLT - BFONT NOSTR NODATA TIME NOSR NONET NOPKG REMOTE NOLINK \
        ADV SRMNT COMM PROTO MULTIHOP DOTDOT BADMSG OVERFLOW NOTUNIQ BADFD REMCHG LIBACC LIBBAD LIBSCN \
        LIBMAX LIBEXEC ILSEQ RESTART STRPIPE USERS NOTSOCK DESTADDRREQ MSGSIZE PROTOTYPE NOPROTOOPT \
        PROTONOSUPPORT SOCKTNOSUPPORT OPNOTSUPP PFNOSUPPORT AFNOSUPPORT ADDRINUSE ADDRNOTAVAIL NETDOWN \
        NETUNREACH NETRESET CONNABORTED CONNRESET NOBUFS ISCONN NOTCONN SHUTDOWN TOOMANYREFS TIMEDOUT \
        CONNREFUSED HOSTDOWN HOSTUNREACH ALREADY INPROGRESS STALE UCLEAN NOTNAM NAVAIL ISNAM REMOTEIO DQUOT \
        NOMEDIUM MEDIUMTYPE CANCELED NOKEY KEYEXPIRED KEYREVOKED KEYREJECTED OWNERDEAD NOTRECOVERABLE RFKILL \
        HWPOISON";
    let name = match name {
        "WOULDBLOCK" => "AGAIN",
        "DEADLOCK" => "DEADLK",
        "NOTSUP" => "OPNOTSUPP",
        _ => name,
    };
    let index = ERRORS.split_whitespace().position(|error| error == name)?;
    i64::try_from(index + 1).ok()
}

/// `DTRACEFLT_...`: the kinds of fault, as in the ERROR probe's `arg4`.
pub(super) fn fault(name: &str) -> Option<i64> {
    let name = name.strip_prefix("DTRACEFLT_")?;
    const FAULTS: [&str; 10] = [
        "UNKNOWN",
        "BADADDR",
        "BADALIGN",
        "ILLOP",
        "DIVZERO",
        "NOSCRATCH",
        "KPRIV",
        "UPRIV",
        "TUPOFLOW",
        "BADSTACK",
    ];
    let index = FAULTS.iter().position(|fault| *fault == name)?;
    i64::try_from(index).ok()
}

/// How a function may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callable {
    /// A value: in expressions.
    Subroutine,
    /// An action: a statement.
    Action,
    /// An aggregating function: `@a = f(...)`.
    Aggregating,
    /// A function of D that nanoprobe does not support yet, with its kind in D.
    Missing(&'static str),
}

/// Whether a function came to D with version 1.1. A text for an earlier version may use
/// its name for anything.
pub(super) fn came_with_1_1(name: &str) -> bool {
    name == "freopen" || subroutine(name).is_some_and(|row| row.since_1_1)
}

/// The actions.
const ACTIONS: [&str; 29] = [
    "trace",
    "tracemem",
    "printf",
    "printa",
    "exit",
    "ustack",
    "jstack",
    "stack",
    "clear",
    "trunc",
    "normalize",
    "denormalize",
    "uaddr",
    "usym",
    "ufunc",
    "umod",
    "sym",
    "func",
    "mod",
    "print",
    "system",
    "freopen",
    "ftruncate",
    "setopt",
    "stop",
    "raise",
    "speculate",
    "commit",
    "discard",
];

/// The functions that can be called, by their names.
pub(super) fn callables() -> impl Iterator<Item = &'static str> {
    let aggregating = AGGREGATING.iter().map(|row| row.name);
    subroutine_names().chain(ACTIONS).chain(aggregating)
}

/// The variables that the tracer provides, by their names.
pub(super) fn variables() -> impl Iterator<Item = &'static str> {
    let builtins = BUILTINS.iter().flat_map(|row| row.names).copied();
    builtins
        .filter(|name| !name.contains("->"))
        .chain(["cwd", "root", "threadname"])
}

/// The meaning of a function's name.
pub(super) fn callable(name: &str) -> Option<Callable> {
    Some(match name {
        _ if subroutine(name).is_some() => Callable::Subroutine,
        _ if ACTIONS.contains(&name) => Callable::Action,
        _ if AGGREGATING.iter().any(|row| row.name == name) => Callable::Aggregating,
        "ddi_pathname"
        | "getf"
        | "getmajor"
        | "getminor"
        | "memref"
        | "memstr"
        | "msgdsize"
        | "msgsize"
        | "mutex_owned"
        | "mutex_owner"
        | "mutex_type_adaptive"
        | "mutex_type_spin"
        | "rw_iswriter"
        | "rw_read_held"
        | "rw_write_held"
        | "typeref"
        | "uaddr_of" => Callable::Missing("subroutine"),
        "breakpoint" | "chill" | "panic" | "pcap" | "printm" | "printt" | "return" => Callable::Missing("action"),
        _ => return None,
    })
}

/// The replacement for a function of D that does not exist for user programs.
pub(super) fn instead_of(name: &str) -> Option<&'static str> {
    Some(match name {
        "printm" | "memref" | "memstr" => "D has tracemem(address, size) and print(*(type *)address)",
        "printt" | "typeref" => "D has print(*(type *)address)",
        "getf" => "descriptors are the kernel's; the return probes of open( ) and socket( ) show them",
        "return" => "it replaces the result of a kernel function; a program's functions always run",
        "chill" | "panic" | "breakpoint" => {
            "it stops the machine's kernel; for the process there are stop( ) and raise(signal)"
        }
        "mutex_owned"
        | "mutex_owner"
        | "mutex_type_adaptive"
        | "mutex_type_spin"
        | "rw_iswriter"
        | "rw_read_held"
        | "rw_write_held" => "it is about locks of the kernel; the program's locks are in its memory: *(int *)arg0",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_numbered_as_by_regset_h() {
        assert_eq!(register("R_R15"), Some(0));
        assert_eq!(register("R_RAX"), Some(14));
        assert_eq!(register("R_PC"), register("R_RIP"));
        assert_eq!(register("R_RIP"), Some(17));
        assert_eq!(register("R_SP"), Some(20));
        assert_eq!(register("R_EAX"), register("R_RAX"));
        assert_eq!(register("R_R1"), register("R_RBX"), "as DTrace's regs.d has it");
        assert_eq!(register("R_AX"), None);
    }

    #[test]
    fn signals_are_numbered_as_by_signal_h() {
        assert_eq!(signal("SIGUSR1"), Some(10));
        assert_eq!(signal("SIGCHLD"), Some(17));
        assert_eq!(signal("SIGSYS"), Some(31));
        assert_eq!(signal("SIGNAL"), None);
        let errors = [
            ("EPERM", 1),
            ("EINTR", 4),
            ("EWOULDBLOCK", 11),
            ("ECONNREFUSED", 111),
            ("EHWPOISON", 133),
        ];
        for (name, number) in errors {
            assert_eq!(error(name), Some(number), "{name}");
        }
        assert_eq!([error("E"), error("E-"), error("ENOTHING")], [None; 3]);
    }

    #[test]
    fn arguments_are_ten() {
        assert_eq!(builtin("arg9"), Some((Builtin::Argument(9), Type::I64)));
        assert_eq!(builtin("arg10"), None);
        assert_eq!(builtin("arg+1"), None);
        assert_eq!(builtin("arg00"), None);
    }
}
