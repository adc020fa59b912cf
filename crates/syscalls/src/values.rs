//! Numbers as names.

use crate::names::{self, Name, SIGNALS};

/// Adds a word to words that are separated by a bar.
fn join(text: &mut String, word: &str) {
    if !text.is_empty() {
        text.push('|');
    }
    text.push_str(word);
}

/// Takes the named bits out of a value, and yields what is left.
fn take(table: &[Name], mut value: u64, text: &mut String) -> u64 {
    for (name, bits) in table {
        // A flag of 32 bits may be a negative number in C.
        let bits = if bits >> 32 == 0xffff_ffff {
            bits & 0xffff_ffff
        } else {
            *bits
        };
        if bits != 0 && value & bits == bits {
            value &= !bits;
            join(text, name);
        }
    }
    value
}

/// The rest of flags that have no name.
fn with_rest(mut text: String, rest: u64, what: &str) -> String {
    match (rest, text.is_empty()) {
        (0, true) => "0".to_owned(),
        (0, false) => text,
        (_, true) => format!("{rest:#x} /* {what} */"),
        (_, false) => {
            join(&mut text, &format!("{rest:#x}"));
            text
        }
    }
}

/// What strace calls flags without a name.
fn unknown(table: &str) -> &'static str {
    match table {
        "prot" => "PROT_???",
        "map" => "MAP_???",
        "open" | "fd" => "O_???",
        "msg" => "MSG_???",
        "wait" => "W???",
        "clone" => "CLONE_???",
        "poll" => "POLL???",
        "epoll events" => "EPOLL???",
        "at" | "statx" | "faccessat" | "unlinkat" => "AT_???",
        _ => "???",
    }
}

/// Flags of a table.
pub(crate) fn flags(table: &str, value: u64) -> String {
    match (table, value) {
        ("prot", 0) => return "PROT_NONE".to_owned(),
        ("access", 0) => return "F_OK".to_owned(),
        ("open", _) => return open_flags(value),
        ("map", _) => return map_flags(value),
        ("statx", _) if value & 0x6000 == 0 => {
            // AT_STATX_SYNC_AS_STAT is 0.
            let mut text = "AT_STATX_SYNC_AS_STAT".to_owned();
            let rest = take(names::flags(table), value, &mut text);
            return with_rest(text, rest, unknown(table));
        }
        _ => {}
    }
    let mut text = String::new();
    let rest = take(names::flags(table), value, &mut text);
    with_rest(text, rest, unknown(table))
}

/// Flags of open: one of the three ways to access it comes first.
pub(crate) fn open_flags(value: u64) -> String {
    const ACCESS: u64 = libc::O_ACCMODE as u64;
    let access = names::one("open").iter().find(|(_, bits)| *bits == value & ACCESS);
    let mut text = access.map_or_else(|| format!("{:#x}", value & ACCESS), |(name, _)| (*name).to_owned());
    let rest = take(names::flags("open"), value & !ACCESS, &mut text);
    with_rest(text, rest, "O_???")
}

fn map_flags(value: u64) -> String {
    const TYPE: u64 = libc::MAP_TYPE as u64;
    let mut text = match names::one("map").iter().find(|(_, bits)| *bits == value & TYPE) {
        Some((name, _)) => (*name).to_owned(),
        None => format!("{:#x} /* MAP_??? */", value & TYPE),
    };
    let rest = take(names::flags("map"), value & !TYPE, &mut text);
    with_rest(text, rest, "MAP_???")
}

/// The name of a value.
pub(crate) fn name(table: &str, value: u64) -> Option<&'static str> {
    names::one(table)
        .iter()
        .find(|(_, known)| *known == value)
        .map(|(name, _)| *name)
}

/// The name of a value; without a name, the number.
pub(crate) fn one(table: &str, value: u64) -> String {
    name(table, value).map_or_else(|| format!("{value:#x} /* ??? */"), str::to_owned)
}

/// As [`one`], of a number of 32 bits with a sign.
pub(crate) fn one_of_int(table: &str, value: i32) -> String {
    name(table, i64::from(value) as u64).map_or_else(|| one(table, u64::from(value as u32)), str::to_owned)
}

pub(crate) fn address(value: u64) -> String {
    if value == 0 {
        "NULL".to_owned()
    } else {
        format!("{value:#x}")
    }
}

pub(crate) fn hexadecimal(value: u64) -> String {
    if value == 0 {
        "0".to_owned()
    } else {
        format!("{value:#x}")
    }
}

/// The name of a signal. The C library's first real-time signal is the kernel's third.
#[must_use]
pub fn signal(number: i32) -> String {
    let known = SIGNALS.iter().find(|(_, known)| *known == number as u64);
    match (known, number) {
        (Some((name, _)), _) => (*name).to_owned(),
        (None, 32) => "SIGRTMIN".to_owned(),
        (None, 33..=64) => format!("SIGRT_{}", number - 32),
        (None, _) => number.to_string(),
    }
}

/// The number of a signal by its name, with or without `SIG`, or in digits.
#[must_use]
pub fn signal_number(name: &str) -> Option<i32> {
    let name = name.to_ascii_uppercase();
    let is_meant = |number: &i32| {
        let known = signal(*number);
        known == name || known.strip_prefix("SIG") == Some(&name) || name.parse() == Ok(*number)
    };
    (1..=64).find(is_meant)
}

/// A set of signals. If most are in it, those that are not are shown.
pub(crate) fn signal_set(bits: u64) -> String {
    let (inverse, bits) = if bits.count_ones() > 42 {
        ("~", !bits)
    } else {
        ("", bits)
    };
    let members = (1..=64).filter(|number| bits & (1 << (number - 1)) != 0);
    let members: Vec<String> = members
        .map(|number| {
            let name = signal(number);
            name.strip_prefix("SIG").unwrap_or(&name).to_owned()
        })
        .collect();
    format!("{inverse}[{}]", members.join(" "))
}

/// A status of wait, as the macros of C that it answers to.
pub(crate) fn wait_status(status: u32) -> String {
    let low = status & 0x7f;
    match (status, low) {
        (0xffff, _) => "WIFCONTINUED(s)".to_owned(),
        (_, 0) => format!("WIFEXITED(s) && WEXITSTATUS(s) == {}", status >> 8 & 0xff),
        (_, 0x7f) => format!(
            "WIFSTOPPED(s) && WSTOPSIG(s) == {}",
            signal((status >> 8 & 0xff) as i32)
        ),
        _ => {
            let core = if status & 0x80 != 0 { " && WCOREDUMP(s)" } else { "" };
            format!("WIFSIGNALED(s) && WTERMSIG(s) == {}{core}", signal(low as i32))
        }
    }
}

/// An error by its name and the C library's text.
pub(crate) fn error(number: i32) -> String {
    let text = std::io::Error::from_raw_os_error(number).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    match syscalls::Errno::new(number).name() {
        Some(name) => format!("{name} ({text})"),
        None => format!("(errno {number})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of strace 6.1.
    #[test]
    fn flags_are_those_of_strace() {
        assert_eq!(flags("open", 0o2204000), "O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY");
        assert_eq!(flags("open", 0o1101), "O_WRONLY|O_CREAT|O_TRUNC");
        assert_eq!(flags("open", 0o100002), "O_RDWR|O_LARGEFILE");
        assert_eq!(
            flags("open", 0o544000),
            "O_RDONLY|O_NONBLOCK|O_DIRECT|O_LARGEFILE|O_NOFOLLOW"
        );
        assert_eq!(flags("prot", 3), "PROT_READ|PROT_WRITE");
        assert_eq!(
            (flags("prot", 0), flags("access", 0)),
            ("PROT_NONE".into(), "F_OK".into())
        );
        assert_eq!(flags("map", 0x812), "MAP_PRIVATE|MAP_FIXED|MAP_DENYWRITE");
        assert_eq!(flags("map", 0x22), "MAP_PRIVATE|MAP_ANONYMOUS");
        assert_eq!(flags("at", 0x4000_0000), "0x40000000 /* AT_??? */");
    }

    #[test]
    fn signals_and_statuses_are_those_of_strace() {
        assert_eq!(signal_set(0), "[]");
        assert_eq!(signal_set(1 << 1 | 1 << 16), "[INT CHLD]");
        assert_eq!(signal_set(!(3 << 31)), "~[RTMIN RT_1]");
        assert_eq!(wait_status(0x2a00), "WIFEXITED(s) && WEXITSTATUS(s) == 42");
        assert_eq!(
            wait_status(0x8b),
            "WIFSIGNALED(s) && WTERMSIG(s) == SIGSEGV && WCOREDUMP(s)"
        );
        let numbers = ["SIGUSR1", "usr1", "10", "RT_2", "RTMIN", "SIG", "0", "65"].map(signal_number);
        let rest = [Some(34), Some(32), None, None, None];
        assert_eq!((&numbers[..3], &numbers[3..]), (&[Some(10); 3][..], &rest[..]));
        assert_eq!(error(2), "ENOENT (No such file or directory)");
    }
}
