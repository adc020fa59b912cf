//! The calls that make threads, and those that make them wait.

use crate::made::Made;
use crate::structures::{of_timespec, word};
use crate::values::{self, address, hexadecimal};

/// The flags of a clone without the signal in their last byte.
fn clone_flags(bits: u64, signal: u64) -> String {
    let flags = values::flags("clone", bits);
    match (bits, signal) {
        (_, 0) => flags,
        (0, signal) => values::signal(signal as i32),
        (_, signal) => format!("{flags}|{}", values::signal(signal as i32)),
    }
}

/// The arguments of clone: those that strace prints before the call, and the others.
pub(crate) fn clone(made: &Made) -> (String, String) {
    let [flags, stack, parent, child, tls, _] = made.arguments;
    let first = format!(
        "child_stack={}, flags={}",
        address(stack),
        clone_flags(flags & !0xff, flags & 0xff)
    );
    let mut text = String::new();
    let has = |bits: i32| flags & bits as u64 != 0;
    if has(libc::CLONE_PARENT_SETTID) {
        text += &format!(", parent_tid={}", address(parent));
    }
    if has(libc::CLONE_SETTLS) {
        text += &format!(", tls={}", address(tls));
    }
    if has(libc::CLONE_CHILD_SETTID) || has(libc::CLONE_CHILD_CLEARTID) {
        text += &format!(", child_tidptr={}", address(child));
    }
    (first, text)
}

/// The structure that clone3 gets, and the thread that it has made.
pub(crate) fn clone3(made: &Made, memory: &[u8]) -> Option<String> {
    let field = |index: usize| word(memory, 8 * index);
    let flags = field(0)?;
    let has = |bits: i32| flags & bits as u64 != 0;
    let mut text = format!("{{flags={}", values::flags("clone", flags));
    if has(libc::CLONE_CHILD_SETTID) || has(libc::CLONE_CHILD_CLEARTID) {
        text += &format!(", child_tid={}", address(field(2)?));
    }
    if has(libc::CLONE_PARENT_SETTID) {
        text += &format!(", parent_tid={}", address(field(3)?));
    }
    let signal = match field(4)? {
        0 => "0".to_owned(),
        signal => values::signal(signal as i32),
    };
    text += &format!(
        ", exit_signal={signal}, stack={}, stack_size={}",
        address(field(5)?),
        hexadecimal(field(6)?)
    );
    if has(libc::CLONE_SETTLS) {
        text += &format!(", tls={}", address(field(7)?));
    }
    text.push('}');
    if has(libc::CLONE_PARENT_SETTID)
        && let Some(child) = made.result()
    {
        text += &format!(" => {{parent_tid=[{child}]}}");
    }
    Some(text)
}

/// The arguments of futex: which there are depends on the operation.
pub(crate) fn futex(made: &Made) -> String {
    const PRIVATE: i32 = libc::FUTEX_PRIVATE_FLAG;
    const REALTIME: i32 = libc::FUTEX_CLOCK_REALTIME;
    let [first, operation, value, fourth, second, third] = made.arguments;
    let operation = operation as i32;
    let command = operation & !(PRIVATE | REALTIME);
    let mut name = values::one_of_int("futex", command);
    if operation & PRIVATE != 0 {
        name += "_PRIVATE";
    }
    if operation & REALTIME != 0 {
        name += "|FUTEX_CLOCK_REALTIME";
    }
    let timeout = || made.bytes(3).and_then(of_timespec).unwrap_or_else(|| address(fourth));
    let bits = match third as u32 {
        u32::MAX => "FUTEX_BITSET_MATCH_ANY".to_owned(),
        bits => hexadecimal(u64::from(bits)),
    };
    let begin = format!("{}, {name}", address(first));
    let value = value as u32;
    match command {
        libc::FUTEX_WAIT => format!("{begin}, {value}, {}", timeout()),
        libc::FUTEX_WAKE => format!("{begin}, {}", value as i32),
        libc::FUTEX_WAIT_BITSET => format!("{begin}, {value}, {}, {bits}", timeout()),
        libc::FUTEX_WAKE_BITSET => format!("{begin}, {}, {bits}", value as i32),
        libc::FUTEX_REQUEUE => format!("{begin}, {value}, {}, {}", fourth as u32, address(second)),
        libc::FUTEX_CMP_REQUEUE => {
            format!(
                "{begin}, {value}, {}, {}, {}",
                fourth as u32,
                address(second),
                third as u32
            )
        }
        libc::FUTEX_LOCK_PI | libc::FUTEX_LOCK_PI2 => format!("{begin}, {}", timeout()),
        libc::FUTEX_UNLOCK_PI | libc::FUTEX_TRYLOCK_PI => begin,
        _ => format!(
            "{begin}, {value}, {}, {}, {}",
            timeout(),
            address(second),
            hexadecimal(u64::from(third as u32))
        ),
    }
}
