//! A call with its memory, as a line of strace.

use crate::capture::{ELEMENTS, End, Part, STRINGS, is_descriptor, of_argument, of_result};
use crate::made::{Made, Outcome};
use crate::meaning::{Bytes, Direction, Meaning};
use crate::prototypes::{Parameter, call};
use crate::structures::{half, of_epoll_event, of_pollfd, structure, unsigned, word};
use crate::values::{self, address, hexadecimal};
use crate::{messages, sockets, tasks, text};

/// The call as text, without a newline; `= result` begins at this column at least. `before`: the columns in use.
#[must_use]
pub fn line(made: &Made, before: usize) -> String {
    const COLUMN: usize = 40;
    // A number without a name.
    let number = made
        .name
        .strip_prefix("sys_")
        .and_then(|number| number.parse::<u32>().ok());
    let name = number.map_or_else(|| made.name.clone(), |number| format!("syscall_{number:#x}"));
    let mut line = format!("{name}({}", arguments(made));
    let result = match made.outcome {
        Outcome::Returned { value, error: 0 } => result(made, value) + &path(made, of_result()),
        Outcome::Returned { error, .. } => format!("-1 {}", values::error(error)),
        Outcome::Left => "?".to_owned(),
        Outcome::Unfinished => {
            line.push_str(if line.ends_with('(') {
                "<unfinished ...>"
            } else {
                " <unfinished ...>"
            });
            return line;
        }
    };
    line.push_str(") ");
    let width = before + line.chars().count();
    line.extend(std::iter::repeat_n(' ', COLUMN.saturating_sub(width)));
    line + "= " + &result
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

fn arguments(made: &Made) -> String {
    let Some(known) = call(&made.name) else {
        return made.arguments.map(hexadecimal).join(", ");
    };
    match made.name.as_str() {
        "clone" => return tasks::clone(made),
        "futex" => return tasks::futex(made),
        _ => {}
    }
    let mut all: Vec<String> = Vec::new();
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
        if !is_unused {
            let text = argument(made, index, parameter);
            all.push(match is_descriptor(parameter) {
                true => text + &path(made, of_argument(index)),
                false => text,
            });
        }
    }
    all.join(", ")
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
        Meaning::Address if made.name == "ioctl" => or_address(of_ioctl(made, index)),
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
        Meaning::Fcntl(_) => of_fcntl(made.argument(1) as i32, value),
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

/// What an ioctl has got or given, for the usual ones of terminals and descriptors.
fn of_ioctl(made: &Made, index: usize) -> Option<String> {
    made.result()?;
    let command = made.argument(1);
    let is = |known: libc::Ioctl| command as u32 == known as u32;
    if is(libc::TCGETS) || is(libc::TCSETS) || is(libc::TCSETSW) || is(libc::TCSETSF) {
        let memory = &made.piece(index, 1)?.bytes;
        let (output, control, own) = (half(memory, 4)?, half(memory, 8)?, half(memory, 12)?);
        let speed = values::name("speed", u64::from(control & libc::CBAUD)).unwrap_or("B???");
        let switch = |name: &str, is_on: bool| format!("{}{name}", if is_on { "" } else { "-" });
        let switches = [
            switch("opost", output & libc::OPOST != 0),
            switch("isig", own & libc::ISIG != 0),
            switch("icanon", own & libc::ICANON != 0),
            switch("echo", own & libc::ECHO != 0),
        ];
        return Some(format!("{{{speed} {} ...}}", switches.join(" ")));
    }
    let memory = made.bytes(index)?;
    if is(libc::TIOCGWINSZ) || is(libc::TIOCSWINSZ) {
        let field = |offset| unsigned(memory, offset, 2);
        let (rows, columns, width, height) = (field(0)?, field(2)?, field(4)?, field(6)?);
        return Some(format!(
            "{{ws_row={rows}, ws_col={columns}, ws_xpixel={width}, ws_ypixel={height}}}"
        ));
    }
    let numbers = [
        libc::FIONREAD,
        libc::FIONBIO,
        libc::FIOASYNC,
        libc::TIOCOUTQ,
        libc::TIOCGPGRP,
        libc::TIOCSPGRP,
    ];
    numbers
        .into_iter()
        .any(is)
        .then(|| half(memory, 0).map(|value| format!("[{}]", value as i32)))?
}

fn of_fcntl(command: i32, value: u64) -> String {
    match command {
        libc::F_SETFD if value == libc::FD_CLOEXEC as u64 => "FD_CLOEXEC".to_owned(),
        libc::F_SETFL => values::open_flags(value),
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETOWN | libc::F_SETFD | libc::F_SETPIPE_SZ => {
            (value as i32).to_string()
        }
        _ => address(value),
    }
}
