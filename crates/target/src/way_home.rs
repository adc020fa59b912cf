//! Cleaning up after a tracer that was killed while it had borrowed a thread.
//!
//! Such a thread stands in the block of code that was made for it ([`homing`](crate::homing)), or is on its way there
//! from a function that it was made to call. It may stand before a `syscall` that the dead tracer wanted, and would
//! still make the call, however late: an unexpected mapping would appear. So it is sent straight home. The code goes
//! when no thread needs it.

use nanoprobe_patch::TargetAddress;

use crate::ThreadId;
use crate::error::StopError;
use crate::homing::HomingCode;
use crate::map::Map;
use crate::process::Process;
use crate::raw::Registers;
use crate::stop::Stopped;

/// How much of a stack is searched for a way back.
const STACK_BYTES: usize = 64 << 10;

/// What there was on the way home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayHome {
    /// Nothing.
    Clean,
    /// A dead tracer's code, which is gone now.
    Cleared,
    /// A dead tracer's code, and a thread that still needs it: it goes home as soon as it runs. To be tried again.
    InUse,
}

impl Process {
    /// Whether a tracer that was killed, or one that is at work, has left a way home in it.
    pub fn has_way_home(&self, map: &Map) -> bool {
        !HomingCode::left(map, self.memory()).is_empty()
    }
}

impl Stopped {
    /// Takes away what a tracer that was killed has left of its way to make system calls. All threads must stand still
    /// ([`Process::stop`](crate::Process::stop)); of one alone it is not known where the others are.
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
    /// own handler of a signal that had waited until the thread went home.
    fn comes_back(&self, registers: &Registers, code: HomingCode) -> bool {
        let mut stack = vec![0; STACK_BYTES];
        let start = TargetAddress(registers.rsp & !7);
        let read = self.process().memory().read_some(start, &mut stack).unwrap_or(0);
        code.is_returned_to(stack.get(..read).unwrap_or_default())
    }
}
