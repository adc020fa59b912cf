//! perf_event_open(2): clocks that run while a thread is on a processor, and samples of the code that it executes.
//!
//! This file makes the system call and maps the memory that the kernel writes samples into. [`crate::sampling`] reads
//! the samples.

use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::ThreadId;

/// perf_event_open(2)'s description of an event, as of Linux 3.19 (`PERF_ATTR_SIZE_VER3`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct PerfEvent {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
    breakpoint_length: u64,
    branch_sample_type: u64,
    user_registers: u64,
    user_stack_bytes: u32,
    clock: i32,
}

const SOFTWARE: u32 = 1;
const TRACEPOINT: u32 = 2;
const CPU_CLOCK: u64 = 0;
const TASK_CLOCK: u64 = 1;
const CONTEXT_SWITCHES: u64 = 3;
const DUMMY: u64 = 9;
const INHERIT: u64 = 1 << 1;
/// exclude_kernel and exclude_hv: without these bits, ordinary users may not open any event.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;
/// `exclude_callchain_user`: a call chain has the kernel's frames only. Those of programs are found better by tables.
const KERNEL_CHAIN: u64 = 1 << 22;
/// `task`: the kernel writes a record for each thread that is created, and for each thread that ends.
const TASKS: u64 = 1 << 13;
/// `comm` and `comm_exec`: the kernel writes a record for each new name of a thread, and says whether the thread has
/// executed a program.
const NAMES: u64 = 1 << 9 | 1 << 24;
/// `sample_id_all`: records other than samples end with the thread, the time and the processor, too.
const STAMPED: u64 = 1 << 18;
/// `context_switch`: the kernel writes a record for each switch of the thread.
const SWITCHES: u64 = 1 << 26;
const USE_CLOCK: u64 = 1 << 25;
/// In `read_format`: reading the event gives the time for which it was enabled, too.
const TIME_ENABLED: u64 = 1 << 0;
/// Threads inherit the event, and forked processes do not (since Linux 5.13).
const INHERIT_THREAD: u64 = 1 << 35;

fn open(event: &PerfEvent, tid: ThreadId, processor: i32) -> Result<OwnedFd, Errno> {
    const NO_GROUP: libc::c_int = -1;
    const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
    // SAFETY: the kernel only reads the event, which contains its own size.
    let opened = Errno::result(unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            ptr::from_ref(event),
            tid,
            processor,
            NO_GROUP,
            CLOSE_ON_EXEC,
        )
    })?;
    let descriptor = i32::try_from(opened).map_err(|_| Errno::EBADF)?;
    // SAFETY: it has just been opened for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A clock that runs while a thread (0: the calling one) is on a processor. Reading it gives a u64 of nanoseconds.
pub(crate) fn task_clock(tid: ThreadId) -> Result<OwnedFd, Errno> {
    const EVERY_PROCESSOR: i32 = -1;
    let event = PerfEvent {
        kind: SOFTWARE,
        size: size_of::<PerfEvent>() as u32,
        config: TASK_CLOCK,
        flags: USER_ONLY,
        ..PerfEvent::default()
    };
    open(&event, tid, EVERY_PROCESSOR)
}

/// The fields of a sample, in the kernel's order. [`crate::sampling`] reads them.
pub(crate) const SAMPLE_TYPE: u64 = IP | TID | TIME | PROCESSOR | PERIOD | USER_REGISTERS;
/// The kernel's stack, in a sample that has it.
const CALL_CHAIN: u64 = 1 << 5;
const IP: u64 = 1 << 0;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const PROCESSOR: u64 = 1 << 7;
const PERIOD: u64 = 1 << 8;
const RAW: u64 = 1 << 10;
const USER_REGISTERS: u64 = 1 << 12;
const USER_STACK: u64 = 1 << 13;
/// The registers of a 64-bit program (`<asm/perf_regs.h>`): ax bx cx dx si di bp sp ip flags cs ss, and r8 to r15.
const REGISTERS: u64 = 0xff_0fff;

/// The bits in `sample_type` and in `flags` for the stacks in a sample.
fn stacks(stack_bytes: u32, kernel: bool) -> (u64, u64) {
    let program = if stack_bytes > 0 { USER_STACK } else { 0 };
    match kernel {
        true => (program | CALL_CHAIN, KERNEL_CHAIN),
        false => (program, 0),
    }
}

/// How a thread is sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    /// The processor time between two samples, in ns.
    pub period_ns: u64,
    /// The number of bytes of the stack in a sample; 0: none.
    pub stack_bytes: u32,
    /// Whether to sample a thread also in the kernel. This needs a privilege.
    pub kernel: bool,
    /// Whether a sample has the kernel's stack.
    pub kernel_stack: bool,
    /// Whether to leave out forked processes.
    pub threads_only: bool,
    /// Whether each sample makes the descriptor readable. The kernel then works a little more for a sample.
    pub wakes: bool,
    /// Whether the kernel also writes the new names of threads.
    pub names: bool,
}

/// In place of a thread: all threads that run on the processor. This needs a privilege.
pub(crate) const EVERY_THREAD: ThreadId = -1;

/// Samples a thread, and the threads that it creates, while they run on this processor. Times are of
/// CLOCK_MONOTONIC.
pub(crate) fn sampling(tid: ThreadId, processor: u32, sampling: Sampling) -> Result<OwnedFd, Errno> {
    let (stacks, chain) = stacks(sampling.stack_bytes, sampling.kernel_stack);
    let user_only = if sampling.kernel { 0 } else { USER_ONLY };
    let threads_only = if sampling.threads_only { INHERIT_THREAD } else { 0 };
    let names = if sampling.names { NAMES | STAMPED } else { 0 };
    let inherit = if tid == EVERY_THREAD { 0 } else { INHERIT };
    let event = PerfEvent {
        kind: SOFTWARE,
        size: size_of::<PerfEvent>() as u32,
        config: CPU_CLOCK,
        sample_period: sampling.period_ns,
        sample_type: SAMPLE_TYPE | stacks,
        read_format: TIME_ENABLED,
        flags: inherit | TASKS | USE_CLOCK | user_only | threads_only | names | chain,
        user_registers: REGISTERS,
        user_stack_bytes: sampling.stack_bytes,
        // 0: when half of the ring is full.
        wakeup_events: sampling.wakes.into(),
        clock: libc::CLOCK_MONOTONIC,
        ..PerfEvent::default()
    };
    let processor = i32::try_from(processor).map_err(|_| Errno::EINVAL)?;
    open(&event, tid, processor)
}

/// How a thread's switches are watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Switching {
    /// The number of bytes of the stack in the sample of a switch; 0: none.
    pub stack_bytes: u32,
    /// Whether the sample of a switch has the kernel's stack. Without either stack there are no samples, which need a
    /// privilege.
    pub kernel_stack: bool,
    /// Whether to leave out forked processes.
    pub threads_only: bool,
}

/// Watches the switches of a thread, and of the threads that it creates, on this processor: by records, or by samples
/// of the thread when it leaves the processor. Times are of CLOCK_MONOTONIC.
pub(crate) fn switching(
    tid: ThreadId,
    processor: u32,
    switching: Switching,
    is_sampled: bool,
) -> Result<OwnedFd, Errno> {
    let threads_only = if switching.threads_only { INHERIT_THREAD } else { 0 };
    let (stacks, chain) = stacks(switching.stack_bytes, switching.kernel_stack);
    let event = PerfEvent {
        kind: SOFTWARE,
        size: size_of::<PerfEvent>() as u32,
        config: if is_sampled { CONTEXT_SWITCHES } else { DUMMY },
        sample_period: is_sampled.into(),
        // All records of a ring have the same fields.
        sample_type: SAMPLE_TYPE | stacks,
        flags: INHERIT
            | USE_CLOCK
            | threads_only
            | chain
            | if is_sampled {
                0
            } else {
                SWITCHES | TASKS | STAMPED | USER_ONLY
            },
        user_registers: REGISTERS,
        user_stack_bytes: switching.stack_bytes,
        clock: libc::CLOCK_MONOTONIC,
        ..PerfEvent::default()
    };
    let processor = i32::try_from(processor).map_err(|_| Errno::EINVAL)?;
    open(&event, tid, processor)
}

/// For how many ns an event of [`sampling`] was enabled.
///
/// # Errors
/// The kernel's error; EIO: it gave less than it should.
pub(crate) fn enabled_ns(event: &OwnedFd) -> Result<u64, Errno> {
    // The event's value, and the time.
    let mut words = [0_u8; 16];
    let read = nix::unistd::read(event, &mut words)?;
    let time = words.last_chunk::<8>().filter(|_| read == words.len());
    time.map(|bytes| u64::from_ne_bytes(*bytes)).ok_or(Errno::EIO)
}

/// How the firings of a tracepoint are sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Firing {
    /// The tracepoint.
    pub number: u64,
    /// The number of bytes of the program's stack; 0: none.
    pub stack_bytes: u32,
    pub kernel_stack: bool,
    /// Whether to leave out forked processes.
    pub threads_only: bool,
}

/// Samples each firing of one of the kernel's tracepoints on this processor, with the record of the tracepoint: while a
/// thread, or one that it has created, is on the processor, or whoever is ([`EVERY_THREAD`]). Needs a privilege. Times
/// are of CLOCK_MONOTONIC.
pub(crate) fn tracepoint(tid: ThreadId, processor: u32, firing: Firing) -> Result<OwnedFd, Errno> {
    let threads_only = if firing.threads_only { INHERIT_THREAD } else { 0 };
    let (stacks, chain) = stacks(firing.stack_bytes, firing.kernel_stack);
    let inherit = if tid == EVERY_THREAD { 0 } else { INHERIT | threads_only };
    let event = PerfEvent {
        kind: TRACEPOINT,
        size: size_of::<PerfEvent>() as u32,
        config: firing.number,
        sample_period: 1,
        sample_type: SAMPLE_TYPE | RAW | stacks,
        flags: inherit | USE_CLOCK | chain,
        user_registers: REGISTERS,
        user_stack_bytes: firing.stack_bytes,
        clock: libc::CLOCK_MONOTONIC,
        ..PerfEvent::default()
    };
    let processor = i32::try_from(processor).map_err(|_| Errno::EINVAL)?;
    open(&event, tid, processor)
}

/// Turns an event, and the events inherited from it, on or off. While an event is off, the rest of its current period
/// is kept.
///
/// # Errors
/// The kernel's error.
pub(crate) fn set_enabled(event: &OwnedFd, enabled: bool) -> Result<(), Errno> {
    const ENABLE: libc::c_ulong = 0x2400;
    const DISABLE: libc::c_ulong = 0x2401;
    let request = if enabled { ENABLE } else { DISABLE };
    // SAFETY: neither request has an argument, or touches memory of ours.
    let done = unsafe { libc::ioctl(event.as_raw_fd(), request, 0) };
    Errno::result(done).map(drop)
}

/// The memory into which the kernel writes the records of an event, and of other events that were redirected to it.
///
/// ```text
/// start      a page of which two words matter: at 1024 how many bytes the kernel has written, at 1032 how many we have
///            read
/// start + 1 the ring of bytes, a power of two of pages
/// ```
#[derive(Debug)]
pub(crate) struct Ring {
    start: NonNull<u8>,
    page_bytes: usize,
    ring_bytes: usize,
    event: Arc<OwnedFd>,
}

// SAFETY: the mapping and the descriptor belong to the value alone, and neither belongs to a thread.
unsafe impl Send for Ring {}

const WRITTEN: usize = 1024;
const READ: usize = 1032;

impl Ring {
    /// Maps the ring of an event; `pages` is a power of two.
    ///
    /// # Errors
    /// The kernel's error; EPERM: the user may lock no more memory.
    pub fn map(event: Arc<OwnedFd>, pages: usize) -> Result<Ring, Errno> {
        let page_bytes = rustix::param::page_size();
        let ring_bytes = pages.checked_mul(page_bytes).ok_or(Errno::EINVAL)?;
        let length = ring_bytes.checked_add(page_bytes).ok_or(Errno::EINVAL)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses; it is ours until it is unmapped in drop().
        let start = unsafe { mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, &event, 0) };
        let start = start.map_err(|error| Errno::from_raw(error.raw_os_error()))?;
        Ok(Ring {
            start: NonNull::new(start.cast()).ok_or(Errno::EFAULT)?,
            page_bytes,
            ring_bytes,
            event,
        })
    }

    /// Makes the kernel write the samples of another event of the same processor into this ring.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn take_in(&self, other: &OwnedFd) -> Result<(), Errno> {
        const SET_OUTPUT: libc::c_ulong = 0x2405;
        // SAFETY: the request takes a descriptor by value and touches no memory of ours.
        let done = unsafe { libc::ioctl(other.as_raw_fd(), SET_OUTPUT, self.event.as_fd().as_raw_fd()) };
        Errno::result(done).map(drop)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both offsets that are passed lie in the first page, which is mapped as long as `self` lives, and are
        // multiples of 8. The kernel reads and writes the words as such.
        unsafe { self.start.add(offset).cast::<AtomicU64>().as_ref() }
    }

    /// Becomes readable when there is something to take, as often as [`Sampling::wakes`] says.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Takes all bytes that were written since the last call.
    pub fn take(&self) -> Vec<u8> {
        let written = self.word(WRITTEN).load(Ordering::Acquire);
        let read = self.word(READ).load(Ordering::Relaxed);
        let length = usize::try_from(written.wrapping_sub(read)).unwrap_or(0);
        let mut bytes = vec![0_u8; length.min(self.ring_bytes)];
        let from = usize::try_from(read).unwrap_or(0) & (self.ring_bytes - 1);
        let to_the_end = bytes.len().min(self.ring_bytes - from);
        let (first, second) = bytes.split_at_mut(to_the_end);
        // SAFETY: the ring begins after the first page and has `ring_bytes` bytes. `from` lies in it, and `first` ends
        // at its end at the latest. `second` is the rest of at most `ring_bytes`, so it is shorter than the part before
        // `from`. The kernel writes nothing there until the second word says that we have read it.
        unsafe {
            let ring = self.start.add(self.page_bytes).as_ptr();
            ptr::copy_nonoverlapping(ring.add(from), first.as_mut_ptr(), first.len());
            ptr::copy_nonoverlapping(ring, second.as_mut_ptr(), second.len());
        }
        self.word(READ).store(written, Ordering::Release);
        bytes
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping that map() made, of this length; nothing borrowed from it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.page_bytes + self.ring_bytes) };
    }
}
