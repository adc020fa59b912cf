//! The variables that the tracer provides, one row each. The checker, the dump of a program, the hints
//! for misspelt names and the table of the reference are derived from these rows.
//!
//! A new variable has its row here, its value in the interpreter and in the code generator, and a test.

use super::expression::Builtin;
use super::value_type::{IntegerType, Type};

/// A variable that the tracer provides.
#[derive(Clone, Copy, Debug)]
pub struct BuiltinRow {
    pub builtin: Builtin,
    /// The names: first the usual one, then others for the same value.
    pub names: &'static [&'static str],
    /// The type in D; `None`: a string.
    pub integer: Option<IntegerType>,
    /// The name of the type in the reference.
    pub shown_type: &'static str,
    /// The meaning: a line of the reference.
    pub line: &'static str,
}

impl BuiltinRow {
    #[must_use]
    pub fn value_type(&self) -> Type {
        self.integer.map_or(Type::String, Type::Integer)
    }
}

const fn integer(bytes: u8, signed: bool) -> Option<IntegerType> {
    Some(IntegerType { bytes, signed })
}

const fn int(builtin: Builtin, names: &'static [&'static str], line: &'static str) -> BuiltinRow {
    row(builtin, names, integer(4, true), "int", line)
}

const fn unsigned(builtin: Builtin, names: &'static [&'static str], line: &'static str) -> BuiltinRow {
    row(builtin, names, integer(4, false), "uint32_t", line)
}

const fn long(builtin: Builtin, names: &'static [&'static str], line: &'static str) -> BuiltinRow {
    row(builtin, names, integer(8, true), "int64_t", line)
}

const fn unsigned_long(builtin: Builtin, names: &'static [&'static str], line: &'static str) -> BuiltinRow {
    row(builtin, names, integer(8, false), "uint64_t", line)
}

const fn string(builtin: Builtin, names: &'static [&'static str], line: &'static str) -> BuiltinRow {
    row(builtin, names, None, "string", line)
}

const fn row(
    builtin: Builtin,
    names: &'static [&'static str],
    integer: Option<IntegerType>,
    shown_type: &'static str,
    line: &'static str,
) -> BuiltinRow {
    BuiltinRow {
        builtin,
        names,
        integer,
        shown_type,
        line,
    }
}

/// All variables except `arg0` to `arg9`, which are [`Builtin::Argument`], in the order of the reference.
pub const BUILTINS: &[BuiltinRow] = &[
    int(
        Builtin::Pid,
        &["pid", "curpsinfo->pr_pid"],
        "number of the target; in a clause that the tracer runs, the tracer's",
    ),
    int(
        Builtin::Tid,
        &["tid", "curlwpsinfo->pr_lwpid"],
        "number of the thread; in a clause that the tracer runs, the tracer's",
    ),
    int(
        Builtin::SystemCall,
        &["curlwpsinfo->pr_syscall"],
        "number of the system call in which the thread sleeps, in clauses of `sched`; -1: in none, or it is not known",
    ),
    int(
        Builtin::Ppid,
        &["ppid", "curpsinfo->pr_ppid"],
        "number of the parent; in a clause that the tracer runs, the tracer's",
    ),
    unsigned(Builtin::Uid, &["uid", "curpsinfo->pr_uid"], "real user"),
    unsigned(Builtin::Gid, &["gid", "curpsinfo->pr_gid"], "real group"),
    unsigned(
        Builtin::EffectiveUid,
        &["curpsinfo->pr_euid"],
        "effective user, as it was at the start",
    ),
    unsigned(
        Builtin::EffectiveGid,
        &["curpsinfo->pr_egid"],
        "effective group, as it was at the start",
    ),
    int(
        Builtin::ProcessGroup,
        &["curpsinfo->pr_pgid"],
        "process group, as it was at the start",
    ),
    int(
        Builtin::ProcessSession,
        &["curpsinfo->pr_sid"],
        "session, as it was at the start",
    ),
    string(
        Builtin::ExecName,
        &["execname", "curpsinfo->pr_fname"],
        "the process's name",
    ),
    string(
        Builtin::ProcessArguments,
        &["curpsinfo->pr_psargs", "execargs"],
        "the command line, at most 79 bytes of it; in a clause that the tracer runs, the tracer's",
    ),
    int(
        Builtin::StartArgumentCount,
        &["curpsinfo->pr_argc"],
        "how many arguments the program was started with; the target's in any clause",
    ),
    unsigned_long(
        Builtin::StartArguments,
        &["curpsinfo->pr_argv"],
        "the address of the pointers to these arguments: `copyinstr(*(uintptr_t *)copyin(curpsinfo->pr_argv, 8))` is the first; the \
         target's in any clause",
    ),
    unsigned_long(
        Builtin::StartEnvironment,
        &["curpsinfo->pr_envp"],
        "the address of the pointers to the environment that the program was started with; the target's in any clause",
    ),
    int(
        Builtin::Cpu,
        &["cpu", "curlwpsinfo->pr_onpro", "curcpu->cpu_id"],
        "number of the CPU",
    ),
    unsigned_long(
        Builtin::Timestamp,
        &["timestamp"],
        "ns since boot, the same within a clause",
    ),
    unsigned_long(
        Builtin::VirtualTimestamp,
        &["vtimestamp"],
        "ns that the thread has run; in a clause that the tracer runs, the tracer's",
    ),
    long(Builtin::WallTimestamp, &["walltimestamp"], "ns since 1970"),
    string(Builtin::ProbeProvider, &["probeprov"], "the probe's provider"),
    string(Builtin::ProbeModule, &["probemod"], "the probe's module"),
    string(Builtin::ProbeFunction, &["probefunc"], "the probe's function"),
    string(Builtin::ProbeName, &["probename"], "the probe's name"),
    unsigned(Builtin::ProbeId, &["id"], "number of the probe"),
    unsigned(
        Builtin::EnabledProbeId,
        &["epid"],
        "number of the probe and the clause together",
    ),
    unsigned_long(
        Builtin::UserCaller,
        &["ucaller"],
        "the address that the function returns to",
    ),
    long(
        Builtin::Goroutine,
        &["goid"],
        "number of the [goroutine](go.md) that the thread runs, 0: none; refused if the program is not in Go \
         (`N_GOROUTINE`)",
    ),
    int(
        Builtin::Errno,
        &["errno"],
        "the thread's present value in its C library, left by the last failed call; at the `return` of a [system call](syscalls.md) that call's; 0 in a clause that the tracer runs",
    ),
    unsigned(
        Builtin::UserStackDepth,
        &["ustackdepth"],
        "how many frames `ustack( )` would show, at most `maxframes`; each takes 8 bytes of the clause's scratch memory",
    ),
];

/// The row of a name.
#[must_use]
pub fn builtin_row(name: &str) -> Option<&'static BuiltinRow> {
    BUILTINS.iter().find(|row| row.names.contains(&name))
}

impl Builtin {
    /// The name in D, if it has a row.
    #[must_use]
    pub fn row_name(self) -> Option<&'static str> {
        let row = BUILTINS.iter().find(|row| row.builtin == self)?;
        row.names.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_name_and_each_variable_has_one_row() {
        let names: Vec<&str> = BUILTINS.iter().flat_map(|row| row.names).copied().collect();
        let different: HashSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), different.len());
        for row in BUILTINS {
            assert_eq!(row.builtin.row_name(), row.names.first().copied(), "{:?}", row.names);
        }
    }
}
