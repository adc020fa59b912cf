//! The paths of descriptors, as `-y` shows them: of arguments before the call, of a new descriptor after it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{ARGUMENTS, End, PARTS, Part, descriptions, word};
use crate::meaning::Meaning;
use crate::prototypes::{Parameter, calls};

/// Calls whose result is a descriptor.
const MAKING: [&str; 22] = [
    "open",
    "openat",
    "openat2",
    "creat",
    "socket",
    "accept",
    "accept4",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "eventfd",
    "eventfd2",
    "signalfd",
    "signalfd4",
    "timerfd_create",
    "inotify_init",
    "inotify_init1",
    "memfd_create",
    "pidfd_open",
    "pidfd_getfd",
];

/// The path of an argument.
pub(crate) fn of_argument(argument: usize) -> Part {
    Part {
        index: PARTS - 1,
        ..Part::new(End::Entry, argument)
    }
}

/// The path of the result.
pub(crate) fn of_result() -> Part {
    Part {
        index: PARTS - 1,
        ..Part::new(End::Return, ARGUMENTS - 1)
    }
}

/// Whether a parameter is a descriptor, by its meaning or its name.
pub(crate) fn is_descriptor(parameter: &Parameter) -> bool {
    match parameter.meaning {
        Meaning::Descriptor | Meaning::Folder => true,
        Meaning::Number { bytes: 4, .. } => match parameter.name {
            "fildes" | "fdin" | "fdout" => true,
            name => (name.starts_with("fd_") || name.ends_with("fd")) && name != "max_fd",
        },
        _ => false,
    }
}

/// The clauses that record the paths.
pub(super) fn clauses(is_meant: impl Fn(&str) -> bool) -> String {
    let mut by_argument: BTreeMap<usize, Vec<&'static str>> = BTreeMap::new();
    for call in calls().filter(|call| is_meant(call.name)) {
        for (index, _) in call.parameters.iter().enumerate().filter(|(_, of)| is_descriptor(of)) {
            by_argument.entry(index).or_default().push(call.name);
        }
    }
    let mut text = String::new();
    for (argument, names) in by_argument {
        let (of, value) = (descriptions(names.into_iter(), "entry"), word(End::Entry, argument));
        let number = of_argument(argument).number();
        let _ = writeln!(
            text,
            "{of}\n{{\n\ttrace({number});\n\ttrace(tid);\n\ttrace((int){value} == {} ? cwd : fds[{value}].fi_pathname);\n}}\n",
            libc::AT_FDCWD
        );
    }
    let number = of_result().number();
    let body = format!("{{\n\ttrace({number});\n\ttrace(tid);\n\ttrace(fds[arg0].fi_pathname);\n}}\n");
    let making: Vec<&str> = MAKING.into_iter().filter(|name| is_meant(name)).collect();
    if !making.is_empty() {
        let of = descriptions(making.into_iter(), "return");
        let _ = writeln!(text, "{of}\n/arg0 >= 0/\n{body}");
    }
    if is_meant("fcntl") {
        let command = word(End::Return, 1);
        let _ = writeln!(
            text,
            "syscall::fcntl:return\n/arg0 >= 0 && ({command} == {} || {command} == {})/\n{body}",
            libc::F_DUPFD,
            libc::F_DUPFD_CLOEXEC
        );
    }
    text
}
