//! Cleaning up after a tracer that was killed while it had borrowed a thread.
//!
//! Such a thread stands in the block of code that was made for it ([`homing`](crate::homing)), or will return to it
//! from a function that the tracer called. It may stand before a `syscall` that the dead tracer requested. It would
//! still make that call, however late, and for example an unexpected mapping would appear. So the thread is sent home
//! at once. The code is removed when no thread needs it.

use nanoprobe_patch::TargetAddress;

use crate::ThreadId;
use crate::error::StopError;
use crate::homing::HomingCode;
use crate::map::Map;
use crate::process::Process;
use crate::raw::Registers;
use crate::stop::Stopped;

/// How much of a stack is searched for a return into the block.
const STACK_BYTES: usize = 64 << 10;

/// The state of a dead tracer's way home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayHome {
    /// No dead tracer has left code.
    Clean,
    /// A dead tracer had left code, which is now removed.
    Cleared,
    /// A dead tracer has left code, and a thread still needs it. The thread goes home as soon as it runs; then the
    /// caller tries again.
    InUse,
}

impl Process {
    /// Whether a tracer, dead or at work, has code for the way home in the process.
    pub fn has_way_home(&self, map: &Map) -> bool {
        !HomingCode::left(map, self.memory()).is_empty()
    }
}

impl Stopped {
    /// Removes the code that killed tracers have left for their system calls. All threads must stand still
    /// ([`Process::stop`](crate::Process::stop)): with a single stopped thread, the places of the others are not known.
    ///
    /// # Errors
    /// [`StopError`]: the process, or its map, is gone.
    pub fn clear_way_home(&mut self) -> Result<WayHome, StopError> {
        let process = self.process().clone();
        let left = HomingCode::left(&process.map()?, process.memory());
        if left.is_empty() {
            return Ok(WayHome::Clean);
        }
        let threads: Vec<(ThreadId, Registers)> = self
            .threads()
            .filter_map(|tid| Some((tid, self.registers(tid).ok()?)))
            .collect();
        let mut in_use = false;
        for code in left {
            let mut needed = !self.is_whole_process();
            for (tid, registers) in &threads {
                if let Some(way_on) = code.way_on(registers.rip) {
                    needed = true;
                    let home = Registers {
                        rip: way_on,
                        rax: 0,
                        orig_rax: u64::MAX,
                        ..*registers
                    };
                    self.set_registers(*tid, &home)?;
                } else {
                    needed |= self.comes_back(registers, code);
                }
            }
            in_use |= needed;
            if !needed {
                code.remove(process.memory());
            }
        }
        Ok(if in_use { WayHome::InUse } else { WayHome::Cleared })
    }

    /// Whether a thread may come back to the block: from a function that a dead tracer called, or from the program's
    /// handler of a signal that was delivered on the way home.
    fn comes_back(&self, registers: &Registers, code: HomingCode) -> bool {
        let mut stack = vec![0; STACK_BYTES];
        let start = TargetAddress(registers.rsp & !7);
        let read = self.process().memory().read_some(start, &mut stack).unwrap_or(0);
        code.is_returned_to(stack.get(..read).unwrap_or_default())
    }
}
