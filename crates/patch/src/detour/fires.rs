//! The code for what happens on a hit: counters are incremented, handlers are called.

use std::ops::Range;

use super::frame::{self, context};
use super::function::{FunctionBlock, emit_function_block};
use super::rare::Rare;
use super::runtime::Runtime;
use crate::assemble::Assembler;
use crate::relocate::{Original, load_branch_target};
use crate::{Fire, FireCondition, Point, Position, Refusal, TargetAddress};

/// How many numbers of system calls have an entry of their own in the table of a [`Fire::CountByNumber`]
/// (`NP_CALL_NUMBERS`).
const NUMBERS: u32 = 512;

/// The fires before one instruction of all points with the same condition. They share one frame.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    site: TargetAddress,
    position: Position,
    full_frame: bool,
    /// Whether the agent calls the block from a signal handler (`np_call_routine`), on a stack that is not the
    /// program's.
    routine: bool,
    fires: Vec<Fire>,
}

impl Block {
    /// `None` when nothing fires.
    pub fn of(points: &[Point], condition: FireCondition) -> Option<Block> {
        let ours = || points.iter().filter(|point| point.condition == condition);
        let fires: Vec<Fire> = ours().flat_map(|point| point.fires.iter().copied()).collect();
        let handlers = fires.iter().any(|fire| matches!(fire, Fire::Call { .. }));
        let any = |position| ours().any(|point| point.position == position);
        let small = ours().any(|point| point.position.is_small());
        let position = match (small, any(Position::Inside) || any(Position::SmallInside)) {
            (true, true) => Position::SmallInside,
            (true, false) => Position::Small,
            (false, true) => Position::Inside,
            (false, false) => Position::Entry,
        };
        let site = ours().next()?.site;
        (!fires.is_empty()).then(|| Block {
            site,
            position,
            full_frame: handlers && ours().any(|point| point.full_frame),
            routine: false,
            fires,
        })
    }

    /// How handlers without a full frame find the stack pointer at the site.
    fn stack_pointer(&self) -> StackPointer {
        let distance = frame::LIGHT_FRAME + frame::red_zone(self.position);
        if self.routine {
            StackPointer::Stored(distance + 16)
        } else {
            StackPointer::Above(distance)
        }
    }

    /// Whether the block calls handlers.
    pub fn calls(&self) -> bool {
        self.fires.iter().any(|fire| matches!(fire, Fire::Call { .. }))
    }

    /// This block in the form that the agent calls. Its stack has no red zone. From the stack pointer up, the stack
    /// holds the return address, a word of the agent's, and the program's stack pointer.
    pub fn into_routine(self) -> Block {
        Block {
            position: Position::Entry,
            routine: true,
            ..self
        }
    }
}

impl Block {
    /// This block, changed so that it passes another instruction pointer to its functions.
    pub fn reported_at(self, site: TargetAddress) -> Block {
        Block { site, ..self }
    }
}

/// An indirect jump, and the ranges of its function: the block fires only if the jump leads outside of them.
pub(crate) type Leaving<'a> = (Original<'a>, &'a [Range<TargetAddress>]);

/// Emits the entry, the look-up of the context, the fires and the exit. With `leaving`, the fires run only if that
/// indirect jump leaves the ranges.
pub(crate) fn emit_block(
    code: &mut Assembler,
    rare: &mut Vec<Rare>,
    runtime: &Runtime,
    block: &Block,
    leaving: Option<Leaving<'_>>,
) -> Result<(), Refusal> {
    check_counters(&block.fires)?;
    let functions = block.fires.iter().filter(|fire| matches!(fire, Fire::Function { .. }));
    let functions = functions.count();
    if functions != 0 {
        if functions != block.fires.len() {
            return Err(Refusal::MixedFires { site: block.site });
        }
        let functions = FunctionBlock {
            site: block.site,
            position: block.position,
            fires: &block.fires,
        };
        return emit_function_block(code, rare, &functions, leaving);
    }
    let leave = code.label();
    frame::emit_enter(code, block.position);
    if let Some((original, _)) = leaving {
        load_branch_target(code, original, frame::red_zone(block.position) + 16)?;
    }
    frame::emit_save_flags(code);
    if let Some((_, inside)) = leaving {
        frame::emit_jump_if_inside(code, inside, leave)?;
    }
    let unconditional = |fire: &&Fire| matches!(fire, Fire::Unconditional { .. });
    for fire in block.fires.iter().filter(unconditional) {
        if let Fire::Unconditional { function } = fire {
            code.bytes_u64(&[0x48, 0xb8], function.0); // mov rax, function
            code.bytes(&[0xff, 0xd0]); // call rax
        }
    }
    if block.fires.iter().all(|fire| unconditional(&fire)) {
        code.bind(leave);
        frame::emit_leave(code, block.position);
        return Ok(());
    }
    frame::emit_find_context(code, rare, runtime, leave);
    let frame = Frame {
        stack_pointer: block.stack_pointer(),
        full: block.full_frame,
        own_stack: block.position.is_small(),
    };
    emit_fires(code, rare, &block.fires, frame);
    code.bind(leave);
    frame::emit_leave(code, block.position);
    Ok(())
}

pub(super) fn check_counters(fires: &[Fire]) -> Result<(), Refusal> {
    let too_large = |fire: &Fire| matches!(fire, Fire::Count { context_offset } if *context_offset > i32::MAX as u32);
    if fires.iter().any(too_large) {
        return Err(Refusal::TooLarge {
            what: "offset of a counter in the context",
        });
    }
    Ok(())
}

/// How to compute the stack pointer at the site from the present stack pointer.
#[derive(Clone, Copy)]
pub(super) enum StackPointer {
    /// It lies this many bytes above the present stack pointer.
    Above(u64),
    /// It is stored this many bytes above the present stack pointer.
    Stored(u64),
}

impl StackPointer {
    /// The opcode: of `lea` or of `mov`, with the same operands.
    fn opcode(self) -> u8 {
        match self {
            StackPointer::Above(_) => 0x8d,
            StackPointer::Stored(_) => 0x8b,
        }
    }

    fn distance(self) -> u64 {
        match self {
            StackPointer::Above(distance) | StackPointer::Stored(distance) => distance,
        }
    }
}

/// The frame on the stack that handlers find.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub stack_pointer: StackPointer,
    /// Whether the frame holds all general registers.
    pub full: bool,
    /// Whether handlers run on the context's own stack.
    pub own_stack: bool,
}

/// The fires in their order; handlers that follow each other are guarded together.
pub(super) fn emit_fires(code: &mut Assembler, rare: &mut Vec<Rare>, fires: &[Fire], frame: Frame) {
    let mut first = true;
    let mut rest = fires;
    while let Some(fire) = rest.first() {
        match *fire {
            Fire::Count { context_offset } => {
                code.bytes_u32(&[0x49, 0xff, 0x87], context_offset); // inc qword [r15 + offset]
                rest = rest.get(1..).unwrap_or_default();
            }
            Fire::CountByNumber { table } => {
                emit_count_by_number(code, table);
                rest = rest.get(1..).unwrap_or_default();
            }
            Fire::Call { .. } => {
                let count = rest.iter().take_while(|fire| matches!(fire, Fire::Call { .. })).count();
                let (calls, behind) = rest.split_at(count);
                emit_calls(code, rare, calls, frame, first);
                first = false;
                rest = behind;
            }
            // Fires of functions do not occur here: their blocks have another frame.
            Fire::Function { .. } => rest = rest.get(1..).unwrap_or_default(),
            Fire::TakeReturn { take, stub } => {
                code.bytes(&[0x56]); // push rsi
                // lea rsi, [rsp + distance + 8], or mov
                let distance = frame.stack_pointer.distance() as u32 + 8;
                code.bytes_u32(&[0x48, frame.stack_pointer.opcode(), 0xb4, 0x24], distance);
                let take = code.literal(take.0);
                code.bytes_u64(&[0x48, 0xb8], stub.0); // mov rax, stub
                code.local(&[0xff, 0x15], take); // call [rip + take]
                code.bytes(&[0x5e]); // pop rsi
                rest = rest.get(1..).unwrap_or_default();
            }
            Fire::Unconditional { .. } => rest = rest.get(1..).unwrap_or_default(),
        }
    }
}

/// Counts under the number that the program has in rax, which is the third word of the frame.
fn emit_count_by_number(code: &mut Assembler, table: TargetAddress) {
    code.bytes(&[0x8b, 0x44, 0x24, 16]); // mov eax, [rsp + 16]
    code.bytes(&[0x51]); // push rcx
    code.bytes_u32(&[0xb9], NUMBERS); // mov ecx, 512
    code.bytes(&[0x39, 0xc8]); // cmp eax, ecx
    code.bytes(&[0x0f, 0x47, 0xc1]); // cmova eax, ecx
    code.bytes_u64(&[0x48, 0xb9], table.0); // mov rcx, table
    code.bytes(&[0x8b, 0x0c, 0x81]); // mov ecx, [rcx + 4 * rax]
    code.bytes(&[0x49, 0xff, 0x04, 0x0f]); // inc qword [r15 + rcx]
    code.bytes(&[0x59]); // pop rcx
}

/// ```text
///   if context->busy: context->missed++, np_enter          once a hit
///   else: busy = rsp; frame, target_rsp; each: enabling, call; busy = 0
/// ```
fn emit_calls(code: &mut Assembler, rare: &mut Vec<Rare>, calls: &[Fire], frame: Frame, counts_missed: bool) {
    let behind = code.label();
    code.bytes(&[0x49, 0x83, 0x3f, 0]); // cmp qword [r15 + busy], 0
    if counts_missed {
        let here = code.label();
        code.jump_if(5, here); // jne
        rare.push(Rare::Missed { here, behind });
    } else {
        code.jump_if(5, behind);
    }
    code.bytes(&[0x49, 0x89, 0x27]); // mov [r15 + busy], rsp
    code.bytes(&[0x49, 0x89, 0x67, context::FRAME]); // mov [r15 + frame], rsp
    // lea rax, [rsp + distance], or mov
    let opcode = frame.stack_pointer.opcode();
    let distance = frame.stack_pointer.distance() as u32;
    match i8::try_from(distance) {
        Ok(distance) => code.bytes(&[0x48, opcode, 0x44, 0x24, distance as u8]),
        Err(_) => code.bytes_u32(&[0x48, opcode, 0x84, 0x24], distance),
    }
    code.bytes(&[0x49, 0x89, 0x47, context::TARGET_RSP]); // mov [r15 + target_rsp], rax
    if frame.own_stack {
        code.bytes(&[0x48, 0x89, 0xe0]); // mov rax, rsp
        code.bytes_u32(&[0x49, 0x8b, 0xa7], context::HANDLER_STACK); // mov rsp, [r15 + handler_stack]
        code.bytes(&[0x50]); // push rax
        if frame.full {
            code.bytes(&[0xff, 0x70, 16, 0xff, 0x70, 8, 0xff, 0x30]); // push [rax + 16], [rax + 8], [rax]
            code.bytes(&[0x49, 0x89, 0x67, context::FRAME]); // mov [r15 + frame], rsp
        }
    }
    if frame.full {
        code.bytes(&[0x53, 0x51, 0x52, 0x56, 0x57, 0x55]); // push rbx, rcx, rdx, rsi, rdi, rbp
        for register in 0..7 {
            code.bytes(&[0x41, 0x50 + register]); // push r8 .. r14
        }
    }
    for call in calls {
        let Fire::Call { handler, enabling } = call else {
            continue;
        };
        code.bytes_u64(&[0x48, 0xb8], enabling.0); // mov rax, enabling
        code.bytes(&[0x49, 0x89, 0x47, context::ENABLING]); // mov [r15 + enabling], rax
        code.bytes_u64(&[0x48, 0xb8], handler.0); // mov rax, handler
        code.bytes(&[0xff, 0xd0]); // call rax
    }
    // The handlers have preserved all registers.
    match (frame.full, frame.own_stack) {
        (true, true) => code.bytes_u32(&[0x48, 0x81, 0xc4], 128), // add rsp, 128
        (true, false) => code.bytes(&[0x48, 0x83, 0xc4, 104]),    // add rsp, 104
        (false, _) => {}
    }
    if frame.own_stack {
        code.bytes(&[0x5c]); // pop rsp
    }
    code.bytes(&[0x49, 0xc7, 0x07, 0, 0, 0, 0]); // mov qword [r15 + busy], 0
    code.bind(behind);
}
