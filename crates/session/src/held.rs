//! Signals that were sent while the program blocked them, and that the agent holds (`agent/held.c`). When the tracer
//! leaves, these signals become pending in the kernel, as they would have been without tracing.

use std::mem::offset_of;

use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{HELD, HELD_THERE, Held, SYNCHRONOUS, TABLE_HELD, TABLE_HELD_COUNT};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Stopped;

use crate::error::SessionError;

const STATE: u32 = 3;
/// siginfo.si_code of sigqueue: the only code with which a thread may send to other processes.
const SI_QUEUE: i32 = -1;
/// Offset of si_code.
const CODE: u64 = 8;

/// A thread that really blocks again the signals that the program believes it blocks.
pub(crate) struct Blocking {
    pub tid: i32,
    /// Which of the four signals the thread blocks.
    pub bits: u64,
}

/// Sends the held signals to threads that block them. `all`: every thread has the mask that the program believes.
/// Otherwise a signal for the process goes to a thread that blocks it, since it would kill another. A signal for a
/// thread that is not among these is dropped.
pub(crate) fn give_back(
    table: TargetAddress,
    stopped: &mut Stopped,
    blocking: &[Blocking],
    all: bool,
) -> Result<(), SessionError> {
    let memory = stopped.process().memory();
    let at = |offset: usize| TargetAddress(table.0.saturating_add(offset as u64));
    if memory.read_u64(at(TABLE_HELD_COUNT)).unwrap_or(0) == 0 {
        return Ok(());
    }
    let mut there = Vec::new();
    for index in 0..HELD {
        let place = at(TABLE_HELD + index * size_of::<Held>());
        let bytes: [u8; size_of::<Held>()] = memory.read_array(place)?;
        let entry = Held::from_bytes(&bytes).filter(|entry| entry.state & STATE == HELD_THERE);
        there.extend(entry.filter(|entry| bit(entry.signal) != 0).map(|entry| (place, entry)));
    }
    // The next tracer must not send these signals once more.
    memory.write(at(TABLE_HELD_COUNT), &[0; 8])?;
    let process = stopped.process().clone();
    let tid = stopped.best_thread()?;
    let mut remote = stopped.remote(tid)?;
    let own = remote.syscall(libc::SYS_getpid, [0; 6])?;
    for (place, entry) in there {
        process.memory().write(place, &[0; size_of::<u32>()])?;
        let blocks = |thread: &&Blocking| thread.bits & bit(entry.signal) != 0;
        let receiver = if entry.thread != 0 {
            let mut threads = blocking.iter().filter(blocks);
            threads.find(|thread| process.inner_tid(thread.tid) == i32::try_from(entry.thread).ok())
        } else if all {
            None
        } else {
            blocking.iter().find(blocks)
        };
        if receiver.is_none() && (entry.thread != 0 || !all) {
            continue;
        }
        let information = place.0.saturating_add(offset_of!(Held, information) as u64);
        let code = TargetAddress(information.saturating_add(CODE));
        process.memory().write(code, &SI_QUEUE.to_le_bytes())?;
        let (own, signal) = (own as u64, u64::from(entry.signal));
        // Sending fails for a thread that is ending, which then needs no signal.
        let _ = match receiver.and_then(|thread| process.inner_tid(thread.tid)) {
            Some(thread) => remote.syscall(
                libc::SYS_rt_tgsigqueueinfo,
                [own, thread as u64, signal, information, 0, 0],
            ),
            None => remote.syscall(libc::SYS_rt_sigqueueinfo, [own, signal, information, 0, 0, 0]),
        };
    }
    Ok(remote.finish()?)
}

/// One of the four signals as a bit of a mask; 0: another signal.
fn bit(signal: u32) -> u64 {
    let bit = signal.checked_sub(1).and_then(|shift| 1_u64.checked_shl(shift));
    bit.unwrap_or(0) & SYNCHRONOUS
}
