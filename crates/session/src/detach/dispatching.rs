//! A thread that waits to turn Syscall User Dispatch on (`agent/dispatch.c`) goes back to the program's own call.

use std::collections::BTreeMap;
use std::mem::offset_of;

use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{DISPATCH_BUSY, Inherited, Registers as Saved, TABLE_INHERITANCE};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Memory, MemoryError, Registers, Stopped};

use super::stacks::OurCode;
use crate::error::SessionError;

/// How far below its saved registers the thread's stack pointer may be.
const STACK_BYTES_MAX: u64 = 16 << 10;
/// The saved registers, and the red zone above them.
const ABOVE: u64 = Saved::BYTES as u64 + 128;
/// The flags that `lahf` yields, and the overflow flag.
const LOW_FLAGS: u64 = 0xd5;
const OVERFLOW: u64 = 0x800;
const TRAP: u64 = 0x100;

/// What the agent has noted in the thread table. The arena would not do: a child that was forked has it, too, and could
/// choose where a thread of its parent's goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    registers: u64,
    syscall: u64,
}

impl Waiting {
    fn read(memory: &Memory, table: u64) -> Result<Option<Waiting>, MemoryError> {
        let word = |field: usize| {
            let offset = (TABLE_INHERITANCE + field) as u64;
            memory.read_u64(TargetAddress(table.wrapping_add(offset)))
        };
        let registers = word(offset_of!(Inherited, dispatch_registers))?;
        let syscall = word(offset_of!(Inherited, dispatch_syscall))?;
        Ok((registers > DISPATCH_BUSY).then_some(Waiting { registers, syscall }))
    }

    /// Whether a thread is the one that waits: in the agent, and a little below its registers.
    fn is(&self, registers: &Registers, code: &OurCode) -> bool {
        let below = self.registers.wrapping_sub(registers.rsp);
        let is_near = (1..STACK_BYTES_MAX).contains(&below);
        is_near && code.image.contains(&registers.rip) && registers.eflags & TRAP == 0
    }
}

/// The thread that waits, with the registers that it had before the shim, at its call. All threads are stopped, and the
/// text is the program's.
pub(super) fn waiting(
    stopped: &mut Stopped,
    table: u64,
    code: &OurCode,
    departures: &BTreeMap<u64, u64>,
) -> Result<Option<(i32, Registers)>, SessionError> {
    // The table may be gone.
    let Ok(Some(waiting)) = Waiting::read(stopped.process().memory(), table) else {
        return Ok(None);
    };
    // A call of made code is made in its detour.
    if code.holds(waiting.syscall) && departures.get(&waiting.syscall) != Some(&waiting.syscall) {
        return Ok(None);
    }
    let threads: Vec<i32> = stopped.threads().collect();
    for tid in threads {
        let mut registers = stopped.registers(tid)?;
        if waiting.is(&registers, code) && !stopped.has_queued_trap(tid) {
            let mut bytes = [0; Saved::BYTES];
            let memory = stopped.process().memory();
            let read = memory.read(TargetAddress(waiting.registers), &mut bytes).is_ok();
            let Some(saved) = Saved::from_bytes(&bytes).filter(|_| read) else {
                return Ok(None);
            };
            set(&mut registers, saved, &waiting);
            return Ok(Some((tid, registers)));
        }
    }
    Ok(None)
}

/// The registers before the shim, at the call.
fn set(registers: &mut Registers, saved: Saved, waiting: &Waiting) {
    let Saved { flags, .. } = saved;
    let overflow = if flags & 0xff == 0 { 0 } else { OVERFLOW };
    *registers = Registers {
        r15: saved.r15,
        r14: saved.r14,
        r13: saved.r13,
        r12: saved.r12,
        r11: saved.r11,
        r10: saved.r10,
        r9: saved.r9,
        r8: saved.r8,
        rbp: saved.rbp,
        rdi: saved.rdi,
        rsi: saved.rsi,
        rdx: saved.rdx,
        rcx: saved.rcx,
        rbx: saved.rbx,
        rax: saved.rax,
        eflags: registers.eflags & !(LOW_FLAGS | OVERFLOW) | flags >> 8 & LOW_FLAGS | overflow,
        rsp: waiting.registers.wrapping_add(ABOVE),
        rip: waiting.syscall,
        // The kernel must not restart the call in which the thread has waited.
        orig_rax: u64::MAX,
        ..*registers
    };
}
