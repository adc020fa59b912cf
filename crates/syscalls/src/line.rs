//! A call with its memory, as a line of strace.

use crate::capture::{ELEMENTS, End, MASK, Part, STRINGS, is_descriptor, of_argument, of_result};
use crate::made::{Made, Outcome};
use crate::meaning::{Bytes, Direction, Meaning};
use crate::prototypes::{Parameter, call};
use crate::structures::{half, of_epoll_event, of_pollfd, structure, unsigned, word};
use crate::values::{self, address, hexadecimal};
use crate::{controls, messages, sockets, tasks, text};

/// The call as text, without a newline: as far as it has got. `before`: the columns in use.
#[must_use]
pub fn line(made: &Made, before: usize) -> String {
    Line::of(made).whole(before)
}

/// A call as text, in the two parts that strace prints if lines of other threads come between them.
#[derive(Clone, Debug)]
pub struct Line {
    name: String,
    /// What strace knows before the call, and what it prints after it.
    first: String,
    second: String,
    /// `None`: the call has not returned.
    result: Option<String>,
    is_left: bool,
}

impl Line {
    #[must_use]
    pub fn of(made: &Made) -> Line {
        // A number without a name.
        let number = made
            .name
            .strip_prefix("sys_")
            .and_then(|number| number.parse::<u32>().ok());
        let (first, second) = arguments(made);
        Line {
            name: number.map_or_else(|| made.name.clone(), |number| format!("syscall_{number:#x}")),
            first,
            second,
            result: match made.outcome {
                Outcome::Returned { value, error: 0 } => Some(result(made, value) + &path(made, of_result())),
                Outcome::Returned { error, .. } => Some(format!("-1 {}", values::error(error))),
                Outcome::Left => Some("?".to_owned()),
                Outcome::Unfinished => None,
            },
            is_left: made.outcome == Outcome::Left,
        }
    }

    /// Both parts.
    #[must_use]
    pub fn whole(&self, before: usize) -> String {
        let Some(result) = &self.result else {
            return self.begun();
        };
        aligned(format!("{}({}{})", self.name, self.first, self.second), before, result)
    }

    /// The first part.
    #[must_use]
    pub fn begun(&self) -> String {
        format!("{}({} <unfinished ...>", self.name, self.first)
    }

    /// The second part. A call that never returns has none of its arguments there.
    #[must_use]
    pub fn resumed(&self, before: usize) -> String {
        const POLLS: [&str; 4] = ["poll", "ppoll", "select", "pselect6"];
        let has_rest = !self.second.is_empty() || POLLS.contains(&self.name.as_str());
        let (rest, result) = match &self.result {
            Some(result) if !self.is_left => (self.second.as_str(), result.as_str()),
            _ if has_rest => (" <unfinished ...>", "?"),
            _ => ("", "?"),
        };
        aligned(format!("<... {} resumed>{rest})", self.name), before, result)
    }
}

/// A line whose `= result` begins at a column at least.
fn aligned(mut line: String, before: usize, result: &str) -> String {
    const COLUMN: usize = 40;
    line.push(' ');
    let width = before + line.chars().count();
    line.extend(std::iter::repeat_n(' ', COLUMN.saturating_sub(width)));
    line + "= " + result
}

/// A call that succeeded: some results are no plain numbers.
fn result(made: &Made, value: i64) -> String {
    let flags = |text: String| format!("{value:#x} (flags {text})");
    match (made.name.as_str(), made.argument(1) as i32) {
        ("mmap" | "mremap" | "brk" | "shmat", _) => format!("{value:#x}"),
        ("fcntl", libc::F_GETFL) => flags(values::open_flags(value as u64)),
        ("fcntl", libc::F_GETFD) if value != 0 => flags("FD_CLOEXEC".to_owned()),
        ("poll" | "ppoll" | "select" | "pselect6" | "recvmmsg", _) if value == 0 => "0 (Timeout)".to_owned(),
        ("poll" | "ppoll", _) => format!("{value} ({})", ready(made, value)),
        ("select" | "pselect6", _) => format!("{value} ({})", messages::ready(made)),
        ("recvmmsg", _) => messages::left(made).map_or_else(|| value.to_string(), |left| format!("{value} ({left})")),
        ("umask", _) => format!("{value:#03o}").replacen("0o", "0", 1),
        _ => value.to_string(),
    }
}

/// The descriptors of poll that are ready.
fn ready(made: &Made, count: i64) -> String {
    let memory = made.bytes(0).unwrap_or_default();
    let of = memory
        .chunks_exact(8)
        .filter(|fd| unsigned(fd, 6, 2).is_some_and(|events| events != 0));
    let all: Vec<String> = of
        .filter_map(|fd| of_pollfd(fd, "revents"))
        .take(count.max(0) as usize)
        .collect();
    format!("[{}]", all.join(", "))
}

/// The arguments that are known before the call, and those that are known after it.
fn arguments(made: &Made) -> (String, String) {
    let Some(known) = call(&made.name) else {
        return (made.arguments.map(hexadecimal).join(", "), String::new());
    };
    match made.name.as_str() {
        "clone" => return tasks::clone(made),
        "futex" => return (tasks::futex(made), String::new()),
        "rt_sigreturn" => {
            let mask = made.at(MASK).and_then(|mask| word(mask, 0));
            let mask = mask.map(|mask| format!("{{mask={}}}", values::signal_set(mask)));
            return (mask.unwrap_or_default(), String::new());
        }
        _ => {}
    }
    let mut all: Vec<String> = Vec::new();
    let mut first = None;
    for (index, parameter) in known.parameters.iter().enumerate() {
        // An argument that the call does not use is not shown.
        let command = made.argument(1) as i32;
        let is_unused = match parameter.meaning {
            Meaning::ModeIf(of) => !creates(made.argument(of)),
            Meaning::Fcntl(_) => {
                matches!(
                    command,
                    libc::F_GETFD | libc::F_GETFL | libc::F_GETOWN | libc::F_GETLEASE
                ) || matches!(command, libc::F_GETPIPE_SZ | libc::F_GET_SEALS)
            }
            _ => made.name == "mremap" && index == 4 && made.argument(3) & libc::MREMAP_FIXED as u64 == 0,
        };
        if is_late(made, parameter) {
            first.get_or_insert(all.len());
        }
        if !is_unused {
            let text = argument(made, index, parameter);
            all.push(match is_descriptor(parameter) {
                true => text + &path(made, of_argument(index)),
                false => text,
            });
        }
    }
    let late = all.split_off(first.unwrap_or(all.len()));
    let (mut first, mut second) = (all.join(", "), late.join(", "));
    if !first.is_empty() && !second.is_empty() {
        first += ", ";
    }
    // What clone3 returns stands behind its structure.
    if let Some(end) = first.find('}').filter(|_| made.name == "clone3") {
        second = first.split_off(end + 1);
    }
    (first, second)
}

/// Whether strace prints an argument after the call.
fn is_late(made: &Made, parameter: &Parameter) -> bool {
    match parameter.meaning {
        Meaning::BytesOut(_) | Meaning::EpollEvents | Meaning::DirectoryEntries | Meaning::Messages(_) => true,
        Meaning::Status | Meaning::Processors => true,
        Meaning::Structure(direction, _) | Meaning::Iovecs(direction, _) => direction == Direction::Out,
        Meaning::SocketAddress(direction, _) | Meaning::Message(direction) => direction == Direction::Out,
        Meaning::Address if made.name == "ioctl" => controls::asks(made.argument(1)),
        // Pointers whose structures are not shown.
        _ => match made.name.as_str() {
            "nanosleep" | "clock_nanosleep" => parameter.name == "rmtp",
            "rt_sigtimedwait" | "waitid" => ["uinfo", "infop"].contains(&parameter.name),
            _ => false,
        },
    }
}

/// The path of a descriptor, if it was recorded: `</etc/hostname>`.
fn path(made: &Made, part: Part) -> String {
    match made.at(part) {
        None | Some(b"<none>") => String::new(),
        Some(path) => match path.strip_suffix(b" (deleted)") {
            Some(path) => format!("<{}>(deleted)", text::path(path)),
            None => format!("<{}>", text::path(path)),
        },
    }
}

/// Whether flags of open make a file, so that its mode matters.
fn creates(flags: u64) -> bool {
    const TEMPORARY: u64 = libc::O_TMPFILE as u64;
    flags & libc::O_CREAT as u64 != 0 || flags & TEMPORARY == TEMPORARY
}

fn octal(mode: u64) -> String {
    format!("{mode:#03o}").replacen("0o", "0", 1)
}

fn number(value: u64, bytes: u8, is_signed: bool) -> String {
    match (bytes, is_signed) {
        (4, true) => (value as i32).to_string(),
        (4, false) => (value as u32).to_string(),
        (_, true) => (value as i64).to_string(),
        _ => value.to_string(),
    }
}

/// One argument.
fn argument(made: &Made, index: usize, parameter: &Parameter) -> String {
    let value = made.argument(index);
    let narrow = value as u32;
    let or_address = |found: Option<String>| found.unwrap_or_else(|| address(value));
    match parameter.meaning {
        Meaning::Number { bytes, is_signed } => {
            // A descriptor is unsigned for the kernel, but -1 for the reader.
            let is_signed = is_signed || ["fd", "fildes", "oldfd", "newfd"].contains(&parameter.name);
            number(value, bytes, is_signed)
        }
        Meaning::Address if made.name == "ioctl" => or_address(controls::of_ioctl(made, index)),
        Meaning::Address => address(value),
        Meaning::Hex if parameter.c_type.contains("int") || parameter.c_type.contains("32") => {
            hexadecimal(u64::from(narrow))
        }
        Meaning::Hex | Meaning::Offset => hexadecimal(value),
        Meaning::Descriptor | Meaning::Id => (narrow as i32).to_string(),
        Meaning::Folder if narrow as i32 == libc::AT_FDCWD => "AT_FDCWD".to_owned(),
        Meaning::Folder => (narrow as i32).to_string(),
        Meaning::Signal => values::signal(narrow as i32),
        Meaning::Mode | Meaning::ModeIf(_) => octal(value & 0xffff),
        Meaning::Flags(table) => match parameter.c_type.contains("int") {
            true => values::flags(table, u64::from(narrow)),
            false => values::flags(table, value),
        },
        Meaning::One(table) => values::one_of_int(table, narrow as i32),
        Meaning::SocketType => sockets::kind(u64::from(narrow)),
        Meaning::Protocol(of) => sockets::protocol(made.argument(of), u64::from(narrow)),
        Meaning::SocketOption => sockets::option(made.argument(1), u64::from(narrow)),
        Meaning::Ioctl => {
            values::name("ioctl", u64::from(narrow)).map_or_else(|| format!("{narrow:#x}"), str::to_owned)
        }
        Meaning::Fcntl(_) => controls::of_fcntl(made.argument(1) as i32, value),
        Meaning::Path => or_address(made.piece(index, 0).map(|path| text::quoted(&path.bytes, path.is_cut))),
        Meaning::Strings => or_address(strings(made, index)),
        Meaning::Environment => environment(made, index, value),
        Meaning::BytesIn(of) => or_address(buffer(made, index, u64::from(made.argument(of) as u32))),
        Meaning::BytesOut(form) => or_address(received(made, index, form)),
        Meaning::Structure(direction, name) => or_address(structured(made, index, direction, name)),
        Meaning::PollFds(of) => or_address(made.bytes(index).map(|memory| {
            let all = memory.chunks_exact(8).filter_map(|fd| of_pollfd(fd, "events"));
            listed(all, made.argument(of) > u64::from(ELEMENTS))
        })),
        Meaning::Iovecs(direction, of) => or_address(listed_buffers(made, index, direction, made.argument(of))),
        Meaning::EpollEvents => match made.result() {
            Some(0) => "[]".to_owned(),
            Some(count) => or_address(made.bytes(index).map(|memory| {
                listed(
                    memory.chunks_exact(12).filter_map(of_epoll_event),
                    count > i64::from(ELEMENTS),
                )
            })),
            None => address(value),
        },
        Meaning::SocketAddress(..) => or_address(made.bytes(index).and_then(|memory| sockets::address(made, memory))),
        Meaning::Length => or_address(length(made, index)),
        Meaning::DirectoryEntries => entries(made, index, value),
        Meaning::Message(direction) => or_address(messages::message(made, index, direction)),
        Meaning::Messages(direction) => or_address(messages::messages(made, index, direction)),
        Meaning::DescriptorSet(_) => or_address(messages::descriptors(made, index)),
        Meaning::Timeout(name) => or_address(made.bytes(index).and_then(|memory| structure(name, memory, &made.name))),
        Meaning::Mask => or_address(messages::mask(made, index)),
        Meaning::Status => or_address(status(made, index)),
        Meaning::Processors => or_address(made.result().and_then(|_| made.bytes(index)).map(processors)),
        Meaning::Clone3 => or_address(made.bytes(index).and_then(|memory| tasks::clone3(made, memory))),
        Meaning::Clone | Meaning::Futex | Meaning::FutexTimeout => address(value),
    }
}

fn listed(all: impl Iterator<Item = String>, is_cut: bool) -> String {
    let mut all: Vec<String> = all.collect();
    if is_cut {
        all.push("...".to_owned());
    }
    format!("[{}]", all.join(", "))
}

/// A buffer that the program passes.
fn buffer(made: &Made, index: usize, length: u64) -> Option<String> {
    let bytes = match (made.argument(index), length) {
        (0, _) => return None,
        (_, 0) => &[][..],
        _ => made.bytes(index)?,
    };
    Some(text::quoted(bytes, (bytes.len() as u64) < length))
}

/// A buffer that the kernel has filled.
fn received(made: &Made, index: usize, form: Bytes) -> Option<String> {
    let length = made.result().filter(|_| made.argument(index) != 0)?;
    if form == Bytes::Terminated {
        return made.piece(index, 0).map(|path| text::quoted(&path.bytes, path.is_cut));
    }
    let bytes = if length == 0 { &[][..] } else { made.bytes(index)? };
    Some(text::buffer(bytes, (bytes.len() as i64) < length, form))
}

fn structured(made: &Made, index: usize, direction: Direction, name: &str) -> Option<String> {
    if direction == Direction::Out && made.result().is_none() {
        return None;
    }
    // wait4 that has found no process writes nothing.
    if made.name == "wait4" && made.result() == Some(0) {
        return None;
    }
    structure(name, made.bytes(index)?, &made.name)
}

/// The strings of an argv.
fn strings(made: &Made, index: usize) -> Option<String> {
    let pointers = made
        .bytes(index)?
        .chunks_exact(8)
        .map(|pointer| word(pointer, 0).unwrap_or_default());
    let pointers: Vec<u64> = pointers.collect();
    let end = pointers.iter().position(|pointer| *pointer == 0);
    let shown = pointers.iter().take(end.unwrap_or(STRINGS).min(STRINGS)).enumerate();
    let all = shown.map(|(string, pointer)| match made.piece(index, string + 1) {
        Some(piece) => text::quoted(&piece.bytes, piece.is_cut),
        None => address(*pointer),
    });
    Some(listed(all, end.is_none_or(|end| end > STRINGS)))
}

/// The number of variables.
fn environment(made: &Made, index: usize, value: u64) -> String {
    let pieces = (0..2).filter_map(|part| made.piece(index, part));
    let count = pieces
        .into_iter()
        .find_map(|piece| piece.bytes.chunks_exact(8).position(|of| of == [0; 8]));
    match count {
        Some(1) => format!("{} /* 1 var */", address(value)),
        Some(count) => format!("{} /* {count} vars */", address(value)),
        None => address(value),
    }
}

fn listed_buffers(made: &Made, index: usize, direction: Direction, count: u64) -> Option<String> {
    let left = match direction {
        Direction::In => u64::MAX,
        Direction::Out => made.result()? as u64,
    };
    messages::vectors(made, (index, 1), made.bytes(index)?, left, count)
}

/// A length, and what the kernel has made of it: `[128 => 16]`.
fn length(made: &Made, index: usize) -> Option<String> {
    let at = |end| Some(half(made.at(Part::new(end, index))?, 0)? as i32);
    let before = at(End::Entry)?;
    match made.result().and_then(|_| at(End::Return)) {
        Some(after) if after != before => Some(format!("[{before} => {after}]")),
        _ => Some(format!("[{before}]")),
    }
}

/// How many entries of a folder there are.
fn entries(made: &Made, index: usize, value: u64) -> String {
    let (Some(mut memory), Some(_)) = (made.bytes(index), made.result()) else {
        return match made.result() {
            Some(0) => format!("{} /* 0 entries */", address(value)),
            _ => address(value),
        };
    };
    let mut count = 0;
    // A record's length is at least that of its fixed part, so each step goes on.
    while let Some(length @ 19..) = unsigned(memory, 16, 2) {
        count += 1;
        memory = memory.get(length as usize..).unwrap_or_default();
    }
    format!("{} /* {count} entries */", address(value))
}

fn status(made: &Made, index: usize) -> Option<String> {
    // Without a process that has changed its state, the status is not written.
    made.result().filter(|pid| *pid > 0)?;
    let status = half(made.bytes(index)?, 0)?;
    Some(format!("[{{{}}}]", values::wait_status(status)))
}

fn processors(memory: &[u8]) -> String {
    let set = memory.iter().enumerate().flat_map(|(byte, bits)| {
        (0..8)
            .filter(move |bit| bits >> bit & 1 == 1)
            .map(move |bit| (byte * 8 + bit).to_string())
    });
    format!("[{}]", set.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of strace -f 6.1.
    #[test]
    fn a_call_is_divided_where_strace_divides_it() {
        let parts = |name: &str, arguments: [u64; 6], outcome: Outcome| {
            let mut made = Made::new(name, arguments);
            made.outcome = outcome;
            let line = Line::of(&made);
            (line.begun(), line.resumed(0))
        };
        let expect =
            |found: (String, String), first: &str, second: &str| assert_eq!(found, (first.into(), second.into()));
        let returned = |value: i64| Outcome::Returned { value, error: 0 };
        expect(
            parts("read", [3, 16, 9, 0, 0, 0], Outcome::Left),
            "read(3,  <unfinished ...>",
            "<... read resumed> <unfinished ...>)    = ?",
        );
        expect(
            parts("pause", [0; 6], Outcome::Unfinished),
            "pause( <unfinished ...>",
            "<... pause resumed>)                    = ?",
        );
        expect(
            parts("wait4", [u64::MAX, 0, 0, 0, 0, 0], returned(7)),
            "wait4(-1,  <unfinished ...>",
            "<... wait4 resumed>NULL, 0, NULL)       = 7",
        );
        expect(
            parts("clone", [0x0120_0011, 0, 0, 16, 0, 0], returned(7)),
            "clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>",
            "<... clone resumed>, child_tidptr=0x10) = 7",
        );
        expect(
            parts("clock_nanosleep", [0, 0, 0, 0, 0, 0], returned(0)),
            "clock_nanosleep(CLOCK_REALTIME, 0, NULL,  <unfinished ...>",
            "<... clock_nanosleep resumed>NULL)      = 0",
        );
        expect(
            parts("set_robust_list", [16, 24, 0, 0, 0, 0], returned(0)),
            "set_robust_list(0x10, 24 <unfinished ...>",
            "<... set_robust_list resumed>)          = 0",
        );
    }
}
