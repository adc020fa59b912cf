//! What stands in for the agent: a thread's context, the thread table, `np_enter` and a handler.
//!
//! Both do all the harm that they may: rax and flags, and the stack below theirs.

use iced_x86::IcedError;
use iced_x86::code_asm::*;
use nanoprobe_patch::{Fire, FireCondition, Point, Position, Runtime, TargetAddress, ThreadKey};

use crate::memory::{map_anywhere, read_word, write};

/// Of the context: a word for each point that counts, and one for each that calls.
const COUNTERS: u64 = 0x1000;
const CALLS: u64 = 0x3000;
/// Multiplier of the thread table's hash (`NP_TABLE_FACTOR`).
const TABLE_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

pub struct Stubs {
    context: u64,
    table: u64,
    enter: u64,
    handler: u64,
}

impl Stubs {
    pub fn map() -> Result<Stubs, IcedError> {
        let (context, table, code) = (map_anywhere(0x8000), map_anywhere((1 << 16) + 64), map_anywhere(0x1000));
        let mut enter = CodeAssembler::new(64)?;
        spoil_below(&mut enter)?;
        enter.mov(rax, context)?;
        enter.cmp(rax, -1)?;
        enter.ret()?;
        write(code, &enter.assemble(code)?);
        let mut handler = CodeAssembler::new(64)?;
        handler.mov(rax, qword_ptr(r15 + 24))?; // context->enabling
        handler.inc(qword_ptr(rax))?;
        spoil_below(&mut handler)?;
        handler.mov(rax, 0x5555_5555_5555_5555_u64)?;
        handler.add(rax, rax)?; // overflow, sign, no carry
        handler.ret()?;
        write(code + 0x800, &handler.assemble(code + 0x800)?);
        Ok(Stubs {
            context,
            table,
            enter: code,
            handler: code + 0x800,
        })
    }

    pub fn runtime(&self, thread_key: ThreadKey) -> Runtime {
        Runtime {
            enter: TargetAddress(self.enter),
            table: TargetAddress(self.table),
            thread_key,
            // Emulation is compared with the processor where the agent is: agent/tests/emulate.rs.
            trap: Some(nanoprobe_patch::TrapForm::Boost),
        }
    }

    /// Makes a thread known in the table, or unknown, so that it asks `np_enter`.
    pub fn know_thread(&self, key: u64, known: bool) {
        let slot = self.table + (key.wrapping_mul(TABLE_FACTOR) >> 52) * 16;
        let entry = if known { [key, self.context] } else { [0, 0] };
        write(slot, &entry[0].to_le_bytes());
        write(slot + 8, &entry[1].to_le_bytes());
    }

    /// A point that counts, or calls the handler, which counts.
    pub fn point(&self, site: TargetAddress, index: usize, calls: bool, full_frame: bool) -> Point {
        let word = 8 * index as u64;
        let fire = if calls {
            Fire::Call {
                handler: TargetAddress(self.handler),
                enabling: TargetAddress(self.context + CALLS + word),
            }
        } else {
            Fire::Count {
                context_offset: (COUNTERS + word) as u32,
            }
        };
        Point {
            site,
            condition: FireCondition::Always,
            position: Position::Inside,
            full_frame,
            fires: vec![fire],
        }
    }

    /// How often a point has fired.
    pub fn count(&self, point: &Point) -> u64 {
        point.fires.iter().map(|fire| read_word(self.counter(fire))).sum()
    }

    pub fn clear(&self, points: &[Point]) {
        for fire in points.iter().flat_map(|point| &point.fires) {
            write(self.counter(fire), &[0; 8]);
        }
        write(self.context, &[0; 64]);
    }

    /// Whether a handler is still running, as far as the detours know.
    pub fn is_busy(&self) -> bool {
        read_word(self.context) as u32 != 0
    }

    fn counter(&self, fire: &Fire) -> u64 {
        match fire {
            Fire::Count { context_offset } => self.context + u64::from(*context_offset),
            Fire::Call { enabling, .. } => enabling.0,
            Fire::Function { cookie, .. } => *cookie,
            // Sessions' own hooks, which are not compared here: they count nothing.
            Fire::Unconditional { .. } | Fire::TakeReturn { .. } => self.context,
        }
    }
}

/// Overwrites 256 bytes below the stack pointer.
fn spoil_below(assembler: &mut CodeAssembler) -> Result<(), IcedError> {
    for word in 1..=32 {
        assembler.mov(qword_ptr(rsp - 8 * word), 0x7ead_beef)?;
    }
    Ok(())
}
