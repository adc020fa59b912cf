//! The system calls for which no safe wrapper fits. All `unsafe` of this crate is here, except the fork in `child`.
//!
//! nix's ptrace is not used: its enumeration of signals lacks the real-time ones. With it, a thread that is about to
//! receive SIGRTMIN+1 could neither be reported nor resumed with its signal.

use std::io::IoSliceMut;
use std::mem::{MaybeUninit, size_of};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::filter;
use crate::{ProcessId, ThreadId};

/// The general registers of a thread, as ptrace(2) gives them. `orig_rax` is the number of the system call that the
/// thread is leaving. It is negative if the thread was interrupted elsewhere.
pub type Registers = libc::user_regs_struct;

/// How a stopped thread is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// The thread runs.
    Continue,
    /// The thread runs to the next entry into, or exit from, a system call.
    ToSystemCall,
    /// The thread runs and is no longer traced by us.
    Detach,
}

/// The kernel's last report about a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It stands in PTRACE_EVENT_STOP: interrupted by the tracer, or stopped by job control.
    Interrupted,
    /// The thread is about to receive this signal. The call that resumes the thread can suppress the signal.
    Signal(i32),
    /// It is at the entry or exit of a system call.
    SystemCall,
    /// The thread is at the end of a successful execve.
    Executed,
    /// The thread is at another PTRACE_EVENT_*.
    Other(i32),
    /// The thread has ended, by exit or by a signal.
    Ended,
}

/// Where a thread has registered its restartable sequences (rseq(2)).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RseqConfiguration {
    pub abi_pointer: u64,
    pub abi_size: u32,
    pub signature: u32,
    pub flags: u32,
    pad: u32,
}

const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const NT_X86_XSTATE: usize = 0x202;

fn ptrace(request: libc::c_uint, tid: ThreadId, address: usize, data: usize) -> Result<i64, Errno> {
    // SAFETY: every caller in this file passes requests that read or write at most one object of ours. `data`, or the
    // iovec that it points to, describes the object with its true size, and the object outlives the call.
    Errno::result(unsafe { libc::ptrace(request, tid, address, data) })
}

const OPTIONS: libc::c_int = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC;

/// A random number that no process can predict.
pub(crate) fn random_number() -> Result<u64, Errno> {
    let mut bytes = [0u8; 8];
    // SAFETY: writes at most eight bytes into eight bytes of ours.
    let read = Errno::result(unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) })?;
    if read as usize == bytes.len() {
        Ok(u64::from_ne_bytes(bytes))
    } else {
        Err(Errno::EAGAIN)
    }
}

/// Makes the caller the tracer of a thread, without stopping the thread.
pub(crate) fn seize(tid: ThreadId) -> Result<(), Errno> {
    ptrace(libc::PTRACE_SEIZE, tid, 0, OPTIONS as usize).map(drop)
}

/// Lets the system calls of a stopped thread pass its seccomp filters, as long as we trace it. EPERM: we lack
/// CAP_SYS_ADMIN, or are under a filter ourselves.
pub(crate) fn suspend_seccomp(tid: ThreadId) -> Result<(), Errno> {
    const PTRACE_O_SUSPEND_SECCOMP: libc::c_int = 1 << 21;
    let options = OPTIONS | PTRACE_O_SUSPEND_SECCOMP;
    ptrace(libc::PTRACE_SETOPTIONS, tid, 0, options as usize).map(drop)
}

/// The seccomp filters of a stopped thread, the latest first; the thread must have some. EACCES means the same as
/// EPERM for [`suspend_seccomp`].
pub(crate) fn seccomp_filters(tid: ThreadId) -> Result<Vec<Vec<filter::Instruction>>, Errno> {
    const PTRACE_SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
    /// The kernel limits all filters of a thread together to 32768 instructions, and adds 4 for each filter.
    const FILTERS_MAX: usize = 32768 / 5;
    let mut filters = Vec::new();
    for index in 0..FILTERS_MAX {
        let length = match ptrace(PTRACE_SECCOMP_GET_FILTER, tid, index, 0) {
            Err(Errno::ENOENT) => break,
            other => other?,
        };
        // The filter still has the length that the kernel has just reported: the thread stands still, and a filter
        // never changes.
        let mut filter = vec![filter::Instruction::default(); usize::try_from(length).unwrap_or(0)];
        ptrace(PTRACE_SECCOMP_GET_FILTER, tid, index, filter.as_mut_ptr() as usize)?;
        filters.push(filter);
    }
    Ok(filters)
}

/// Asks a seized thread to stop; it then reports [`Event::Interrupted`].
pub(crate) fn interrupt(tid: ThreadId) -> Result<(), Errno> {
    ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Resumes a stopped thread. `signal` is delivered if the thread stands at [`Event::Signal`].
pub(crate) fn resume(tid: ThreadId, how: Resume, signal: i32) -> Result<(), Errno> {
    let request = match how {
        Resume::Continue => libc::PTRACE_CONT,
        Resume::ToSystemCall => libc::PTRACE_SYSCALL,
        Resume::Detach => libc::PTRACE_DETACH,
    };
    ptrace(request, tid, 0, usize::try_from(signal).unwrap_or(0)).map(drop)
}

pub(crate) fn registers(tid: ThreadId) -> Result<Registers, Errno> {
    let mut registers = MaybeUninit::<Registers>::zeroed();
    ptrace(libc::PTRACE_GETREGS, tid, 0, registers.as_mut_ptr() as usize)?;
    // SAFETY: the structure consists of integers, was zeroed, and the kernel has filled it in.
    Ok(unsafe { registers.assume_init() })
}

pub(crate) fn set_registers(tid: ThreadId, registers: &Registers) -> Result<(), Errno> {
    ptrace(libc::PTRACE_SETREGS, tid, 0, std::ptr::from_ref(registers) as usize).map(drop)
}

/// The thread's signal mask. During a call like ppoll or sigsuspend it is the mask that the call will restore. Bit n-1:
/// signal n.
pub(crate) fn signal_mask(tid: ThreadId) -> Result<u64, Errno> {
    let mut mask = 0u64;
    ptrace(
        libc::PTRACE_GETSIGMASK,
        tid,
        size_of::<u64>(),
        std::ptr::from_mut(&mut mask) as usize,
    )?;
    Ok(mask)
}

pub(crate) fn set_signal_mask(tid: ThreadId, mask: u64) -> Result<(), Errno> {
    ptrace(
        libc::PTRACE_SETSIGMASK,
        tid,
        size_of::<u64>(),
        std::ptr::from_ref(&mask) as usize,
    )
    .map(drop)
}

/// The whole extended state (x87, SSE, AVX, ...) in the XSAVE layout.
pub(crate) fn extended_state(tid: ThreadId) -> Result<Vec<u8>, Errno> {
    let mut state = vec![0u8; 64 * 1024];
    let mut vector = libc::iovec {
        iov_base: state.as_mut_ptr().cast(),
        iov_len: state.len(),
    };
    ptrace(
        libc::PTRACE_GETREGSET,
        tid,
        NT_X86_XSTATE,
        std::ptr::from_mut(&mut vector) as usize,
    )?;
    state.truncate(vector.iov_len);
    Ok(state)
}

pub(crate) fn set_extended_state(tid: ThreadId, state: &[u8]) -> Result<(), Errno> {
    // The kernel only reads the memory to which this vector points.
    let vector = libc::iovec {
        iov_base: state.as_ptr().cast_mut().cast(),
        iov_len: state.len(),
    };
    ptrace(
        libc::PTRACE_SETREGSET,
        tid,
        NT_X86_XSTATE,
        std::ptr::from_ref(&vector) as usize,
    )
    .map(drop)
}

/// Exists since Linux 5.13; an error before.
pub(crate) fn rseq_configuration(tid: ThreadId) -> Result<RseqConfiguration, Errno> {
    let mut configuration = RseqConfiguration::default();
    let bytes = size_of::<RseqConfiguration>();
    ptrace(
        PTRACE_GET_RSEQ_CONFIGURATION,
        tid,
        bytes,
        std::ptr::from_mut(&mut configuration) as usize,
    )?;
    Ok(configuration)
}

/// The si_code of the signal that the thread is about to receive: positive when the kernel raised it.
pub(crate) fn signal_code(tid: ThreadId) -> Result<i32, Errno> {
    let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
    ptrace(libc::PTRACE_GETSIGINFO, tid, 0, information.as_mut_ptr() as usize)?;
    // SAFETY: zeroed plain data, filled in by the kernel.
    Ok(unsafe { information.assume_init() }.si_code)
}

/// Whether the thread's own queue (not its process's) holds a signal of this set that the kernel raised.
pub(crate) fn has_queued(tid: ThreadId, signals: u64) -> Result<bool, Errno> {
    const AT_ONCE: usize = 8;
    let mut arguments = libc::ptrace_peeksiginfo_args {
        off: 0,
        flags: 0,
        nr: AT_ONCE as i32,
    };
    loop {
        let mut queue = [const { MaybeUninit::<libc::siginfo_t>::zeroed() }; AT_ONCE];
        let found = ptrace(
            libc::PTRACE_PEEKSIGINFO,
            tid,
            std::ptr::from_ref(&arguments) as usize,
            queue.as_mut_ptr() as usize,
        )?;
        let found = usize::try_from(found).unwrap_or(0);
        for information in queue.iter().take(found) {
            // SAFETY: zeroed plain data, filled in by the kernel.
            let information = unsafe { information.assume_init_ref() };
            let signal = information.si_signo;
            // A signal that was sent has a code of 0 or less.
            if information.si_code > 0 && matches!(signal, 1..=64) && signals >> (signal - 1) & 1 == 1 {
                return Ok(true);
            }
        }
        if found < AT_ONCE {
            return Ok(false);
        }
        arguments.off += found as u64;
    }
}

/// The next event of one traced thread, if an event has happened. ECHILD: the thread is not traced, or no longer.
/// With `keep_end`, the end of the thread stays uncollected, because it is a child of the tracer whose status is
/// still needed.
///
/// A thread that is about to receive a signal is reported by every call until it is resumed, because its stop is not
/// collected. If the tracer is killed before it has passed the signal on, the kernel delivers the signal of an
/// uncollected stop, and drops that of a collected one. After an `int3`, a thread without its signal would continue
/// in the middle of an instruction.
pub(crate) fn poll_event(tid: ThreadId, keep_end: bool) -> Result<Option<Event>, Errno> {
    // One call asks for stops and ends: asked for stops alone, the kernel would return ECHILD for a thread that has
    // ended.
    match wait_once(tid, libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT)? {
        Some(Event::Ended) if !keep_end => wait_once(tid, libc::WEXITED),
        event @ (None | Some(Event::Ended | Event::Signal(_))) => Ok(event),
        // If the thread was killed in between, the stop is gone, and the next call reports the end.
        Some(_) => Ok(wait_once(tid, libc::WSTOPPED).unwrap_or(None)),
    }
}

fn wait_once(tid: ThreadId, kinds: i32) -> Result<Option<Event>, Errno> {
    let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = kinds | libc::WNOHANG | libc::__WALL;
    let id = libc::id_t::try_from(tid).map_err(|_| Errno::ESRCH)?;
    // SAFETY: `information` is ours and of the right size.
    Errno::result(unsafe { libc::waitid(libc::P_PID, id, information.as_mut_ptr(), options) })?;
    // SAFETY: zeroed plain data, filled in by the kernel.
    let information = unsafe { information.assume_init() };
    // SAFETY: waitid fills in the fields of SIGCHLD; when it found nothing they are zero from above.
    let (pid, status) = unsafe { (information.si_pid(), information.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    Ok(Some(decode(information.si_code, status)))
}

fn decode(code: i32, status: i32) -> Event {
    if matches!(code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) {
        return Event::Ended;
    }
    match (status >> 8, status & 0xff) {
        (libc::PTRACE_EVENT_STOP, _) => Event::Interrupted,
        (libc::PTRACE_EVENT_EXEC, _) => Event::Executed,
        (0, 0x85) => Event::SystemCall,
        (0, signal) => Event::Signal(signal),
        (event, _) => Event::Other(event),
    }
}

/// Whether two processes have the same memory. ENOSYS: the kernel was built without kcmp(2).
pub(crate) fn has_same_memory(one: ProcessId, other: ProcessId) -> Result<bool, Errno> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: no memory is involved.
    Errno::result(unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) }).map(|order| order == 0)
}

/// How the kernel schedules a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheduling {
    policy: libc::c_int,
    priority: libc::c_int,
}

impl Scheduling {
    /// The lowest real-time priority, which precedes all threads that are not real-time. New threads get the ordinary
    /// policy.
    pub const URGENT: Scheduling = Scheduling {
        policy: libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
        priority: 1,
    };

    /// This scheduling, but new threads do not inherit it: they get the ordinary policy.
    pub fn not_inherited(self) -> Scheduling {
        Scheduling {
            policy: self.policy | libc::SCHED_RESET_ON_FORK,
            ..self
        }
    }

    /// Whether this is the system's default scheduling.
    pub fn is_ordinary(self) -> bool {
        matches!(self.policy, libc::SCHED_OTHER | libc::SCHED_BATCH)
    }
}

/// The scheduling of the calling thread.
pub(crate) fn scheduling() -> Result<Scheduling, Errno> {
    let mut parameters = MaybeUninit::<libc::sched_param>::zeroed();
    // SAFETY: the kernel fills in the parameters, which are ours.
    let policy = Errno::result(unsafe { libc::sched_getscheduler(0) })?;
    // SAFETY: as above.
    Errno::result(unsafe { libc::sched_getparam(0, parameters.as_mut_ptr()) })?;
    // SAFETY: zeroed plain data, filled in by the kernel.
    let priority = unsafe { parameters.assume_init() }.sched_priority;
    Ok(Scheduling { policy, priority })
}

/// Sets the scheduling of the calling thread.
pub(crate) fn set_scheduling(scheduling: Scheduling) -> Result<(), Errno> {
    let parameters = libc::sched_param {
        sched_priority: scheduling.priority,
    };
    // SAFETY: the kernel only reads the parameters.
    Errno::result(unsafe { libc::sched_setscheduler(0, scheduling.policy, &parameters) }).map(drop)
}

/// Sends a signal to one thread.
pub(crate) fn send_signal(pid: ProcessId, tid: ThreadId, signal: i32) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    Errno::result(unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) }).map(drop)
}

/// Reads another process's memory as far as that process itself may read it. Returns the number of bytes before the
/// first bad page.
pub(crate) fn read_memory(pid: ProcessId, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let base = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
    let remote = [RemoteIoVec { base, len: into.len() }];
    process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(into)], &remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_of_waitid_are_told_apart() {
        assert_eq!(decode(libc::CLD_TRAPPED, libc::SIGTRAP | 0x80), Event::SystemCall);
        assert_eq!(
            decode(libc::CLD_TRAPPED, libc::SIGTRAP | (libc::PTRACE_EVENT_STOP << 8)),
            Event::Interrupted
        );
        assert_eq!(
            decode(libc::CLD_TRAPPED, libc::SIGSTOP | (libc::PTRACE_EVENT_STOP << 8)),
            Event::Interrupted
        );
        assert_eq!(
            decode(libc::CLD_TRAPPED, libc::SIGTRAP | (libc::PTRACE_EVENT_EXEC << 8)),
            Event::Executed
        );
        assert_eq!(decode(libc::CLD_TRAPPED, libc::SIGTRAP), Event::Signal(libc::SIGTRAP));
        assert_eq!(
            decode(libc::CLD_TRAPPED, 40),
            Event::Signal(40),
            "real-time signals are signals"
        );
        assert_eq!(decode(libc::CLD_KILLED, libc::SIGKILL), Event::Ended);
        assert_eq!(decode(libc::CLD_EXITED, 0), Event::Ended);
    }

    /// The tracer has seen a signal, and is killed before it passes the signal on. The thread still receives the
    /// signal.
    #[test]
    fn a_signal_outlives_the_tracer_that_saw_it() {
        static CODE: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);
        extern "C" fn note(_: i32, information: *mut libc::siginfo_t, _: *mut libc::c_void) {
            // SAFETY: the kernel passes a siginfo to a handler that was installed with SA_SIGINFO.
            CODE.store(unsafe { (*information).si_code }, std::sync::atomic::Ordering::Relaxed);
        }
        let mut pipe = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        // SAFETY: the child makes system calls, executes an int3 that it handles, and ends: all is async-signal-safe.
        let target = unsafe { libc::fork() };
        if target == 0 {
            // SAFETY: as above; a zeroed sigaction is one without flags and with an empty mask.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = note as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
                libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut());
                libc::read(pipe[0], [0_u8].as_mut_ptr().cast(), 1);
                std::arch::asm!("int3");
                const SI_KERNEL: i32 = 0x80;
                let received = CODE.load(std::sync::atomic::Ordering::Relaxed) == SI_KERNEL;
                libc::_exit(if received { 7 } else { 1 });
            }
        }
        // SAFETY: this child makes system calls only, and ends by SIGKILL, or by _exit where a call fails.
        let tracer = unsafe { libc::fork() };
        if tracer == 0 {
            let mut seen = seize(target).is_ok();
            // SAFETY: as above.
            unsafe { libc::write(pipe[1], [1_u8].as_ptr().cast(), 1) };
            while seen {
                match poll_event(target, false) {
                    Ok(None) => {}
                    Ok(Some(Event::Signal(libc::SIGTRAP))) => {
                        let _ = interrupt(target);
                        // SAFETY: as above.
                        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
                    }
                    _ => seen = false,
                }
            }
            // SAFETY: as above.
            unsafe { libc::_exit(1) };
        }
        let end_of = |child: i32| {
            let mut status = 0;
            // SAFETY: a child of ours that no other code waits for; `status` is ours.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status
        };
        let (tracer, target) = (end_of(tracer), end_of(target));
        // SAFETY: both are ours, and not used any more.
        unsafe {
            libc::close(pipe[0]);
            libc::close(pipe[1]);
        }
        assert!(
            libc::WIFSIGNALED(tracer) && libc::WTERMSIG(tracer) == libc::SIGKILL,
            "{tracer:#x}"
        );
        assert!(libc::WIFEXITED(target) && libc::WEXITSTATUS(target) == 7, "{target:#x}");
    }
}
