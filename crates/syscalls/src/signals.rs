//! A signal that is handled, as strace prints it.

use crate::structures::{half, word};
use crate::values;

/// The bytes of a siginfo that are read: those of the kernel's members, without the padding after them.
pub const SIGINFO: usize = 48;

/// The places of the members.
const ERROR: usize = 4;
const CODE: usize = 8;
const MEMBERS: usize = 16;

/// The line of a signal; `None`: the kernel has written no siginfo.
#[must_use]
pub fn line(signal: i32, information: Option<&[u8]>) -> String {
    let name = values::signal(signal);
    let members = information.and_then(|information| members(signal, information));
    let members = members.unwrap_or_else(|| "...".to_owned());
    format!("--- {name} {{si_signo={name}, {members}}} ---")
}

/// The members after the number: the code, and what is there for this signal and code.
fn members(signal: i32, information: &[u8]) -> Option<String> {
    let code = half(information, CODE)? as i32;
    let mut text = format!("si_code={}", code_name(signal, code));
    let error = half(information, ERROR)?;
    if error != 0 {
        let name = values::error(error as i32);
        text += &format!(", si_errno={}", name.split(' ').next().unwrap_or_default());
    }
    text += &match code {
        // Somebody has sent it.
        libc::SI_USER | libc::SI_TKILL => sender(information)?,
        libc::SI_TIMER => timer(information)?,
        libc::SI_SIGIO => band(information)?,
        ..=0 => sender(information)? + &value(information, false)?,
        _ => of_kernel(signal, code, information)?,
    };
    Some(text)
}

/// What the kernel says of a signal that it has raised.
fn of_kernel(signal: i32, code: i32, information: &[u8]) -> Option<String> {
    let member = |offset: usize| half(information, MEMBERS + offset);
    let address = |name: &str, offset: usize| {
        let address = word(information, MEMBERS + offset)?;
        Some(format!(", {name}={}", values::address(address)))
    };
    let kernel = |code: u32| code as i32;
    Some(match signal {
        libc::SIGCHLD => child(code, information)?,
        libc::SIGSEGV if code == kernel(linux_raw_sys::general::SEGV_BNDERR) => {
            address("si_addr", 0)? + &address("si_lower", 16)? + &address("si_upper", 24)?
        }
        libc::SIGSEGV if code == kernel(linux_raw_sys::general::SEGV_PKUERR) => {
            address("si_addr", 0)? + &format!(", si_pkey={}", member(16)?)
        }
        libc::SIGBUS if [libc::BUS_MCEERR_AR, libc::BUS_MCEERR_AO].contains(&code) => {
            let bits = member(8)? & 0xffff;
            address("si_addr", 0)? + &format!(", si_addr_lsb={}", values::hexadecimal(bits.into()))
        }
        libc::SIGILL | libc::SIGFPE | libc::SIGSEGV | libc::SIGBUS | libc::SIGTRAP => address("si_addr", 0)?,
        libc::SIGIO if (1..=3).contains(&code) => band(information)?,
        libc::SIGIO => String::new(),
        libc::SIGSYS => {
            let name = syscalls::Sysno::new(member(8)? as usize).map(|call| call.name());
            let name = name.map_or_else(
                || format!("{:#x}", member(8).unwrap_or(0)),
                |name| format!("__NR_{name}"),
            );
            let architecture = values::one("architecture", member(12)?.into());
            address("si_call_addr", 0)? + &format!(", si_syscall={name}, si_arch={architecture}")
        }
        _ => {
            let sender = match (member(0)?, member(4)?) {
                (0, 0) => String::new(),
                _ => sender(information)?,
            };
            sender + &value(information, false)?
        }
    })
}

fn code_name(signal: i32, code: i32) -> String {
    let of = |table: &str| values::name(table, i64::from(code) as u64);
    let name = of("code").or_else(|| of(&values::signal(signal)));
    name.map_or_else(|| format!("{code:#x}"), str::to_owned)
}

fn sender(information: &[u8]) -> Option<String> {
    let (process, user) = (half(information, MEMBERS)? as i32, half(information, MEMBERS + 4)?);
    Some(format!(", si_pid={process}, si_uid={user}"))
}

/// What the sender has given with the signal; nothing, if that is 0 and need not be there.
fn value(information: &[u8], is_needed: bool) -> Option<String> {
    let value = word(information, MEMBERS + 8)?;
    if value == 0 && !is_needed {
        return Some(String::new());
    }
    Some(format!(", si_int={}, si_ptr={}", value as i32, values::address(value)))
}

fn timer(information: &[u8]) -> Option<String> {
    let (timer, overrun) = (half(information, MEMBERS)?, half(information, MEMBERS + 4)? as i32);
    let timer = values::hexadecimal(timer.into());
    Some(format!(", si_timerid={timer}, si_overrun={overrun}") + &value(information, true)?)
}

fn band(information: &[u8]) -> Option<String> {
    let (band, descriptor) = (
        word(information, MEMBERS)? as i64,
        half(information, MEMBERS + 8)? as i32,
    );
    Some(format!(", si_band={band}, si_fd={descriptor}"))
}

/// What has happened to a child, and how long it has run.
fn child(code: i32, information: &[u8]) -> Option<String> {
    let status = half(information, MEMBERS + 8)? as i32;
    let status = match code {
        libc::CLD_EXITED => status.to_string(),
        _ => values::signal(status),
    };
    let time = |name: &str, offset: usize| {
        // In hundredths of a second: USER_HZ, which is the same on all machines.
        let ticks = word(information, MEMBERS + offset)?;
        let seconds = match ticks {
            0 => String::new(),
            _ => format!(" /* {}.{:02} s */", ticks / 100, ticks % 100),
        };
        Some(format!(", {name}={ticks}{seconds}"))
    };
    Some(sender(information)? + &format!(", si_status={status}") + &time("si_utime", 16)? + &time("si_stime", 24)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A siginfo with these halves of words after the code.
    fn information(code: i32, members: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; SIGINFO];
        bytes[CODE..CODE + 4].copy_from_slice(&code.to_le_bytes());
        for (index, member) in members.iter().enumerate() {
            bytes[MEMBERS + 4 * index..MEMBERS + 4 * index + 4].copy_from_slice(&member.to_le_bytes());
        }
        bytes
    }

    /// Lines of strace 6.1.
    #[test]
    fn lines_are_those_of_strace() {
        let line = |signal, code, members: &[u32]| line(signal, Some(&information(code, members)));
        let all = [
            line(libc::SIGUSR1, libc::SI_USER, &[14329, 0]),
            line(libc::SIGUSR2, libc::SI_TKILL, &[14329, 0]),
            line(37, libc::SI_QUEUE, &[14329, 0, 0x1234]),
            line(libc::SIGHUP, libc::SI_QUEUE, &[14329, 0]),
            line(libc::SIGALRM, libc::SI_KERNEL, &[]),
            line(libc::SIGCHLD, libc::CLD_EXITED, &[14339, 0, 3, 0, 25]),
            line(libc::SIGCHLD, libc::CLD_KILLED, &[14338, 0, 9]),
            line(libc::SIGSEGV, 1, &[8]),
            line(libc::SIGTRAP, libc::SI_KERNEL, &[]),
            line(libc::SIGFPE, 1, &[0x2cb5_35f0, 0x5579]),
            line(libc::SIGPROF, libc::SI_TIMER, &[0, 0, 7]),
        ];
        let expected = [
            "--- SIGUSR1 {si_signo=SIGUSR1, si_code=SI_USER, si_pid=14329, si_uid=0} ---",
            "--- SIGUSR2 {si_signo=SIGUSR2, si_code=SI_TKILL, si_pid=14329, si_uid=0} ---",
            "--- SIGRT_5 {si_signo=SIGRT_5, si_code=SI_QUEUE, si_pid=14329, si_uid=0, si_int=4660, si_ptr=0x1234} ---",
            "--- SIGHUP {si_signo=SIGHUP, si_code=SI_QUEUE, si_pid=14329, si_uid=0} ---",
            "--- SIGALRM {si_signo=SIGALRM, si_code=SI_KERNEL} ---",
            "--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=14339, si_uid=0, si_status=3, si_utime=25 \
             /* 0.25 s */, si_stime=0} ---",
            "--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_KILLED, si_pid=14338, si_uid=0, si_status=SIGKILL, si_utime=0, \
             si_stime=0} ---",
            "--- SIGSEGV {si_signo=SIGSEGV, si_code=SEGV_MAPERR, si_addr=0x8} ---",
            "--- SIGTRAP {si_signo=SIGTRAP, si_code=SI_KERNEL, si_addr=NULL} ---",
            "--- SIGFPE {si_signo=SIGFPE, si_code=FPE_INTDIV, si_addr=0x55792cb535f0} ---",
            "--- SIGPROF {si_signo=SIGPROF, si_code=SI_TIMER, si_timerid=0, si_overrun=0, si_int=7, si_ptr=0x7} ---",
        ];
        assert_eq!(all, expected);
    }

    /// Rarer ones, by the kernel's layout.
    #[test]
    fn what_a_signal_has_besides_is_shown() {
        let line = |signal, code, members: &[u32]| line(signal, Some(&information(code, members)));
        let system_call = line(libc::SIGSYS, 1, &[0x10, 0, 39, 0xc000_003e]);
        assert!(
            system_call.contains("SYS_SECCOMP, si_call_addr=0x10, si_syscall=__NR_getpid, si_arch=AUDIT_ARCH_X86_64}"),
            "{system_call}"
        );
        assert!(line(libc::SIGIO, 1, &[65, 0, 3]).contains("si_code=POLL_IN, si_band=65, si_fd=3}"));
        assert!(line(libc::SIGSEGV, 4, &[8, 0, 0, 0, 5]).contains("SEGV_PKUERR, si_addr=0x8, si_pkey=5}"));
        assert!(line(libc::SIGBUS, 4, &[8, 0, 12]).contains("BUS_MCEERR_AR, si_addr=0x8, si_addr_lsb=0xc}"));
        assert!(line(libc::SIGBUS, 77, &[]).contains("si_code=0x4d, "));
    }

    #[test]
    fn what_is_not_there_is_not_shown() {
        let expected = "--- SIGUSR1 {si_signo=SIGUSR1, ...} ---";
        assert_eq!(line(libc::SIGUSR1, None), expected);
        assert_eq!(line(libc::SIGUSR1, Some(&[0; 20])), expected);
    }
}
