//! Stand-ins for the agent: a thread's context, the thread table, `np_enter`, a handler, and a
//! dispatcher of function handlers.
//!
//! All of them change as much as they may: rax and flags (the dispatcher: every register that a function need not
//! preserve), and the stack below theirs. The code that loads all registers if the dispatcher finds the direction flag
//! set is libnanoprobe's own.

use iced_x86::IcedError;
use iced_x86::code_asm::*;
use nanoprobe_patch::{Fire, FireCondition, Point, Position, Runtime, TargetAddress, ThreadKey, TrapForm};

use crate::memory::{map_anywhere, read_word, write};

/// Offsets in the context: a word for each point that counts, and one for each point that calls.
const COUNTERS: u64 = 0x1000;
const CALLS: u64 = 0x3000;
/// DF.
const DIRECTION_FLAG: u32 = 0x400;
/// Multiplier of the thread table's hash (`NP_TABLE_FACTOR`).
const TABLE_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

// np_resume. The symbol is hidden, so this copy does not conflict with the library's copy.
std::arch::global_asm!(
    include_str!("../../../crates/libnanoprobe/src/hit/resume.S"),
    ".text",
    options(att_syntax)
);
unsafe extern "C" {
    fn np_resume();
}

pub struct Stubs {
    context: u64,
    table: u64,
    enter: u64,
    handler: u64,
    dispatch: u64,
}

/// The action of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    Count,
    /// Calls the handler, which counts, with or without all registers in the frame.
    Call {
        full_frame: bool,
    },
    /// Calls the dispatcher, which counts.
    Function,
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
        let mut dispatch = CodeAssembler::new(64)?;
        let mut backwards = dispatch.create_label();
        dispatch.inc(qword_ptr(rdi))?;
        spoil_below(&mut dispatch)?;
        // A push would be aligned like any other access, so it is no test.
        dispatch.movaps(xmmword_ptr(rsp - 24), xmm0)?;
        for register in [rcx, r8, r9, r10, r11] {
            dispatch.mov(register, 0x7ead_beef_dead_beef_u64)?;
        }
        dispatch.test(dword_ptr(rsi + 128), DIRECTION_FLAG)?;
        dispatch.jne(backwards)?;
        dispatch.mov(rdx, rcx)?;
        dispatch.mov(rsi, rcx)?;
        dispatch.xor(eax, eax)?;
        dispatch.ret()?;
        dispatch.set_label(&mut backwards)?;
        dispatch.mov(qword_ptr(rsi + 120), rdx)?; // rip
        dispatch.mov(eax, 1)?;
        dispatch.ret()?;
        write(code + 0x400, &dispatch.assemble(code + 0x400)?);
        Ok(Stubs {
            context,
            table,
            enter: code,
            handler: code + 0x800,
            dispatch: code + 0x400,
        })
    }

    pub fn runtime(&self, thread_key: ThreadKey, trap: Option<TrapForm>) -> Runtime {
        Runtime {
            enter: TargetAddress(self.enter),
            table: TargetAddress(self.table),
            thread_key,
            trap,
        }
    }

    /// Makes a thread known in the table, or unknown, so that it asks `np_enter`.
    pub fn know_thread(&self, key: u64, known: bool) {
        let slot = self.table + (key.wrapping_mul(TABLE_FACTOR) >> 52) * 16;
        let entry = if known { [key, self.context] } else { [0, 0] };
        write(slot, &entry[0].to_le_bytes());
        write(slot + 8, &entry[1].to_le_bytes());
    }

    /// Makes a point. `index` is its number, which no other point has.
    pub fn point(&self, site: TargetAddress, index: usize, does: Does, condition: FireCondition) -> Point {
        let word = 8 * index as u64;
        let fire = match does {
            Does::Call { .. } => Fire::Call {
                handler: TargetAddress(self.handler),
                enabling: TargetAddress(self.context + CALLS + word),
            },
            Does::Count => Fire::Count {
                context_offset: (COUNTERS + word) as u32,
            },
            Does::Function => Fire::Function {
                dispatch: TargetAddress(self.dispatch),
                resume: TargetAddress(np_resume as *const () as u64),
                cookie: self.context + CALLS + word,
                quick: None,
            },
        };
        Point {
            site,
            condition,
            position: Position::Inside,
            full_frame: does == Does::Call { full_frame: true },
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
            // Hooks of a session count nothing, so they are not compared here.
            Fire::CountByNumber { .. } | Fire::Unconditional { .. } | Fire::TakeReturn { .. } => self.context,
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
