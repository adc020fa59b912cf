//! What ioctl and fcntl get or give.

use crate::made::Made;
use crate::structures::{half, unsigned};
use crate::values::{self, address};

/// Whether the command asks for something, which strace prints after the call.
pub(crate) fn asks(command: u64) -> bool {
    const ASKING: [u64; 5] = [
        libc::TCGETS,
        libc::TIOCGWINSZ,
        libc::FIONREAD,
        libc::TIOCOUTQ,
        libc::TIOCGPGRP,
    ];
    ASKING.contains(&(command & 0xffff_ffff))
}

/// What an ioctl has got or given, for the usual ones of terminals and descriptors.
pub(crate) fn of_ioctl(made: &Made, index: usize) -> Option<String> {
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

/// The argument of a command of fcntl.
pub(crate) fn of_fcntl(command: i32, value: u64) -> String {
    match command {
        libc::F_SETFD if value == libc::FD_CLOEXEC as u64 => "FD_CLOEXEC".to_owned(),
        libc::F_SETFL => values::open_flags(value),
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETOWN | libc::F_SETFD | libc::F_SETPIPE_SZ => {
            (value as i32).to_string()
        }
        _ => address(value),
    }
}
