//! The table of calls, `prototypes.txt`.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::meaning::Meaning;

/// A system call.
#[derive(Debug)]
pub struct Call {
    /// The name in Linux's table.
    pub name: &'static str,
    /// At most six.
    pub parameters: Vec<Parameter>,
}

/// A parameter of a call.
#[derive(Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The type as the kernel declares it: `const char *`.
    pub c_type: &'static str,
    /// The parameter's name: `filename`.
    pub name: &'static str,
    /// What the decoder makes of it.
    pub meaning: Meaning,
}

/// The call of this name, if its parameters are known.
#[must_use]
pub fn call(name: &str) -> Option<&'static Call> {
    static BY_NAME: OnceLock<HashMap<&'static str, Call>> = OnceLock::new();
    let read = || calls().map(|call| (call.name, call)).collect();
    BY_NAME.get_or_init(read).get(name)
}

/// All calls, in the order of their numbers.
pub fn calls() -> impl Iterator<Item = Call> {
    let lines = include_str!("prototypes.txt").lines();
    lines.filter(|line| !line.starts_with('#')).filter_map(of_line)
}

/// The calls of a set of `strace -e`, or the call of this name; none: it is neither.
#[must_use]
pub fn set(name: &str) -> Vec<&'static str> {
    const PROCESS: [&str; 14] = [
        "fork",
        "vfork",
        "clone",
        "clone3",
        "execve",
        "execveat",
        "exit",
        "exit_group",
        "wait4",
        "waitid",
        "kill",
        "tkill",
        "tgkill",
        "pidfd_send_signal",
    ];
    const MEMORY: [&str; 12] = [
        "brk",
        "mmap",
        "munmap",
        "mprotect",
        "mremap",
        "madvise",
        "mincore",
        "msync",
        "mlock",
        "munlock",
        "mlockall",
        "munlockall",
    ];
    const NETWORK: [&str; 18] = [
        "socket",
        "socketpair",
        "bind",
        "connect",
        "listen",
        "accept",
        "accept4",
        "getsockname",
        "getpeername",
        "sendto",
        "recvfrom",
        "sendmsg",
        "recvmsg",
        "sendmmsg",
        "recvmmsg",
        "shutdown",
        "setsockopt",
        "getsockopt",
    ];
    let has = |call: &Call, of: fn(&Parameter) -> bool| call.parameters.iter().any(of);
    let is_meant = |call: &Call| match name {
        "all" => true,
        "%file" => {
            has(call, |of| of.meaning == Meaning::Path && !of.c_type.contains("void")) && !call.name.contains("key")
        }
        "%desc" => has(call, |of| of.name.contains("fd") || of.meaning == Meaning::Descriptor),
        "%process" => PROCESS.contains(&call.name),
        "%memory" => MEMORY.contains(&call.name),
        "%network" | "%net" => NETWORK.contains(&call.name),
        "%signal" => call.name.contains("sig") || ["kill", "tkill", "tgkill", "pause"].contains(&call.name),
        _ => call.name == name,
    };
    calls().filter(is_meant).map(|call| call.name).collect()
}

/// A line of the table. A test checks that each line can be read.
fn of_line(line: &'static str) -> Option<Call> {
    let (name, rest) = line.split_once('(')?;
    let inside = rest.strip_suffix(')')?;
    let parts = inside.split(", ").filter(|part| !part.is_empty());
    let parameters = parts.map(parameter).collect::<Option<Vec<_>>>()?;
    (parameters.len() <= 6).then_some(Call { name, parameters })
}

/// `const char *filename {path}`
fn parameter(part: &'static str) -> Option<Parameter> {
    let (declared, words) = match part.split_once(" {") {
        Some((declared, words)) => (declared, words.strip_suffix('}')?),
        None => (part, ""),
    };
    let at = declared.rfind([' ', '*'])? + 1;
    let (c_type, name) = declared.split_at(at);
    let c_type = c_type.trim_end();
    let meaning = match words {
        "" => Meaning::of_type(c_type),
        words => Meaning::parse(words)?,
    };
    Some(Parameter { c_type, name, meaning })
}

#[cfg(test)]
mod tests {
    use syscalls::x86_64::Sysno;

    use super::*;

    /// Numbers without an implementation on x86-64.
    const NONE: [&str; 20] = [
        "_sysctl",
        "create_module",
        "get_kernel_syms",
        "query_module",
        "nfsservctl",
        "getpmsg",
        "putpmsg",
        "afs_syscall",
        "tuxcall",
        "security",
        "set_thread_area",
        "get_thread_area",
        "lookup_dcookie",
        "epoll_ctl_old",
        "epoll_wait_old",
        "vserver",
        "uretprobe",
        "uprobe",
        "unused",
        "unused2",
    ];

    #[test]
    fn each_line_is_read_and_each_call_is_there() {
        let lines = include_str!("prototypes.txt").lines();
        for line in lines.filter(|line| !line.starts_with('#')) {
            assert!(of_line(line).is_some(), "{line}");
        }
        for number in Sysno::iter() {
            let name = number.name();
            assert_eq!(call(name).is_some(), !NONE.contains(&name), "{name}");
        }
        let order: Vec<usize> = calls()
            .filter_map(|call| Some(call.name.parse::<Sysno>().ok()?.id() as usize))
            .collect();
        assert!(order.is_sorted() && order.len() == calls().count());
    }

    #[test]
    fn a_parameter_has_type_name_and_meaning() {
        let openat = call("openat").expect("openat");
        let shown: Vec<(&str, &str)> = openat.parameters.iter().map(|of| (of.c_type, of.name)).collect();
        assert_eq!(
            shown,
            [
                ("int", "dfd"),
                ("const char *", "filename"),
                ("int", "flags"),
                ("umode_t", "mode")
            ]
        );
        assert_eq!(openat.parameters[1].meaning, Meaning::Path);
        assert_eq!(call("getpid").expect("getpid").parameters, []);
    }
}
