//! System calls that our stop interrupted, and how they go on.
//!
//! A thread that is stopped while it sleeps in a system call leaves the call with one of the kernel's private codes
//! in `rax`, and the call's number in `orig_rax`. When the thread goes on without having to run a signal handler, the
//! kernel rewinds `rip` by the two bytes of `syscall` and makes the call again:
//!
//! ```text
//!   rax                               without a handler       with one
//!   -512 ERESTARTSYS                  again                   again if SA_RESTART, else EINTR
//!   -513 ERESTARTNOINTR               again                   again
//!   -514 ERESTARTNOHAND               again                   EINTR
//!   -516 ERESTART_RESTARTBLOCK        again, the time left    EINTR
//!   -4   EINTR                        EINTR                   EINTR
//! ```
//!
//! The last line causes trouble: some calls end with EINTR for a mere stop (signal(7), "Interruption of system calls
//! and library functions by stop signals"), and many programs take that for an error. Some calls have had no effect
//! yet when they return EINTR, so they can be made again. For these calls, [`hide_interruption`] replaces the code of
//! the last line by ERESTARTNOHAND. A relative timeout then begins anew; no other trace remains.
//!
//! The code ERESTART_RESTARTBLOCK causes trouble under seccomp: to continue for the time left, the kernel makes the
//! thread call restart_syscall, and a filter that does not expect this call kills. There, [`begin_anew`] replaces the
//! code by ERESTARTNOINTR.

use crate::raw::Registers;

const EINTR: i64 = -4;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;
/// libc has no name for this call.
const IO_PGETEVENTS: i64 = 333;

/// Calls that Linux fails with EINTR when their thread is merely stopped, and that can be made again.
const ENDED_BY_STOPS: [i64; 21] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    IO_PGETEVENTS,
    libc::SYS_io_uring_enter,
    // Sockets with SO_RCVTIMEO or SO_SNDTIMEO, and some devices. For these, EINTR means that nothing was transferred.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
];

/// Whether the thread was interrupted in a system call that will be made again.
pub(crate) fn is_pending(registers: &Registers) -> bool {
    in_system_call(registers) && matches!(registers.rax as i64, -514..=-512 | -516)
}

/// Makes an interrupted call continue unnoticed, by changing the registers of a thread that we have just stopped.
/// Returns false if no change is needed.
pub(crate) fn hide_interruption(registers: &mut Registers) -> bool {
    let hide = in_system_call(registers)
        && registers.rax as i64 == EINTR
        && ENDED_BY_STOPS.contains(&(registers.orig_rax as i64));
    if hide {
        registers.rax = ERESTARTNOHAND as u64;
    }
    hide
}

/// Makes an interrupted call begin anew with its whole time, by changing the registers of a thread that we have just
/// stopped. Returns false if the thread was in no call that would continue with the time left.
pub(crate) fn begin_anew(registers: &mut Registers) -> bool {
    let timed = in_system_call(registers) && registers.rax as i64 == ERESTART_RESTARTBLOCK;
    if timed {
        registers.rax = ERESTARTNOINTR as u64;
    }
    timed
}

/// The registers after the kernel has rewound the call. They are needed only for a thread that goes home without us:
/// rt_sigreturn makes the kernel forget the rest of an ERESTART_RESTARTBLOCK. Such a call therefore begins anew, with
/// its whole time. After a second interruption, a call has become restart_syscall, and ends with EINTR.
pub(crate) fn rewound(registers: &Registers) -> Registers {
    let mut registers = *registers;
    if is_pending(&registers) {
        registers.rax = registers.orig_rax;
        registers.rip = registers.rip.wrapping_sub(2);
    }
    registers.orig_rax = u64::MAX;
    registers
}

fn in_system_call(registers: &Registers) -> bool {
    registers.orig_rax as i64 >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(orig_rax: i64, rax: i64) -> Registers {
        // SAFETY: plain integers.
        let zeroed: Registers = unsafe { std::mem::zeroed() };
        Registers {
            orig_rax: orig_rax as u64,
            rax: rax as u64,
            rip: 0x1002,
            ..zeroed
        }
    }

    #[test]
    fn only_interrupted_calls_that_can_be_repeated_are_hidden() {
        let hidden = |number, result| {
            let mut registers = registers(number, result);
            hide_interruption(&mut registers).then_some(registers.rax as i64)
        };
        assert_eq!(hidden(libc::SYS_epoll_wait, EINTR), Some(-514));
        assert_eq!(hidden(libc::SYS_epoll_wait, 3), None);
        assert_eq!(
            hidden(libc::SYS_close, EINTR),
            None,
            "closing twice may close another's file"
        );
        assert_eq!(hidden(libc::SYS_connect, EINTR), None, "the second would say EALREADY");
        assert_eq!(hidden(-1, EINTR), None, "the program just has -4 in rax");
    }

    #[test]
    fn only_timed_calls_begin_anew() {
        let anew = |number, result| {
            let mut registers = registers(number, result);
            begin_anew(&mut registers).then_some(registers.rax as i64)
        };
        assert_eq!(anew(libc::SYS_nanosleep, -516), Some(-513));
        assert_eq!(anew(libc::SYS_read, -512), None);
        assert_eq!(anew(-1, -516), None, "a value, not a code");
    }

    #[test]
    fn rewinding_is_what_the_kernel_does() {
        let back = rewound(&registers(libc::SYS_nanosleep, -516));
        assert_eq!(
            (back.rax as i64, back.rip, back.orig_rax as i64),
            (libc::SYS_nanosleep, 0x1000, -1)
        );
        let done = rewound(&registers(libc::SYS_read, 5));
        assert_eq!((done.rax, done.rip), (5, 0x1002));
        let elsewhere = rewound(&registers(-1, -512));
        assert_eq!(
            (elsewhere.rax as i64, elsewhere.rip),
            (-512, 0x1002),
            "a value, not a code"
        );
    }
}
