//! The tactic `trap` in its three forms.
//!
//! ```text
//!   site:  int3             every byte of the instruction, so that a thread that lost a trap meets the next
//!
//!   boosted    the handler sends the thread to the detour, as a jump would
//!   emulated   the handler fires, by a routine, and does what the instruction does
//!   stepped    the handler fires, by a routine; the copy in the detour is single-stepped
//!
//!   detour:    [fires] copy; jmp after the site           as for a jump; all forms have it
//!   routines:  [fires] ret                                emulated, stepped: called from the handler
//!   struct np_emulation                                   what the redirect of the site leads to
//! ```
//!
//! An instruction that has an [`Emulation`] is emulated. Any other instruction is boosted; one that cannot be relocated
//! is refused. So stepping is never chosen: it exists to be forced and compared.

mod descriptor;
mod emulation;
mod form;
mod transfer;

use std::ops::Range;

use iced_x86::{Instruction, Mnemonic, Register};

pub use descriptor::REDIRECT_EMULATION;
use descriptor::{FLAG_CALLS, FLAG_STACK_OF_CALLS, FLAG_STEPS, FLAG_TOUCHES_MEMORY, Operand, Operation, Places};
pub(crate) use emulation::Emulation;
pub use form::TrapForm;

use crate::assemble::{Assembler, Label};
use crate::detour::fires::{Block, emit_block};
use crate::detour::rare::Rare;
use crate::detour::runtime::Runtime;
use crate::function::Kind;
use crate::{Displaced, Fire, FireCondition, Refusal, TargetAddress};

/// The form that a trap at an instruction takes.
pub(crate) fn form_of(displaced: &Displaced, forced: Option<TrapForm>) -> TrapForm {
    let mut fires = displaced.points.iter().flat_map(|point| &point.fires);
    // Functions may change every register, and do what a signal handler may not. The agent's own fires may block,
    // or write to the program's stack. Fires after the instruction exist only in the detour.
    if fires.any(|fire| {
        !matches!(
            fire,
            Fire::Count { .. } | Fire::CountByNumber { .. } | Fire::Call { .. }
        )
    }) || displaced
        .points
        .iter()
        .any(|point| point.condition == FireCondition::Behind)
    {
        return TrapForm::Boost;
    }
    let instruction = displaced.decode();
    let emulated = Emulation::of_instruction(&instruction).is_some();
    match forced {
        Some(TrapForm::Step) if can_step(&instruction) => TrapForm::Step,
        Some(TrapForm::Emulate) | None if emulated => TrapForm::Emulate,
        _ => TrapForm::Boost,
    }
}

/// Whether the trap flag works as expected across an instruction. It does not if the instruction enters the kernel,
/// changes the flag itself, or delays the trap (a load of ss).
fn can_step(instruction: &Instruction) -> bool {
    let kind = Kind::of(instruction);
    let flags = matches!(
        instruction.mnemonic(),
        Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq | Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq
    );
    let to_ss = instruction.op_count() > 0
        && instruction.op0_kind() == iced_x86::OpKind::Register
        && instruction.op0_register() == Register::SS;
    let transaction = matches!(
        instruction.mnemonic(),
        Mnemonic::Xabort | Mnemonic::Xend | Mnemonic::Lss
    );
    // A stepping thread is found by its thread pointer, so an instruction that changes the thread pointer cannot be
    // stepped.
    let thread_pointer = matches!(instruction.mnemonic(), Mnemonic::Wrfsbase);
    let near_return = !matches!(instruction.mnemonic(), Mnemonic::Retf);
    !matches!(kind, Kind::System | Kind::Stop | Kind::FarJump | Kind::Breakpoint)
        && !flags
        && !to_ss
        && !transaction
        && !thread_pointer
        && near_return
}

/// Labels in a trap's detour, which has only one instruction.
#[derive(Clone, Copy)]
pub(crate) struct Copy {
    /// The start of the fires before the copy.
    pub entry: Label,
    /// The start of the copy,
    pub start: Label,
    /// The end of the copy.
    pub end: Label,
}

/// The part of a trap that is still to be laid out: its descriptor.
pub(crate) struct Pending {
    descriptor: Label,
    flags: u8,
    places: Places,
}

/// Appends the routines.
pub(crate) fn emit_routines(
    code: &mut Assembler,
    rare: &mut Vec<Rare>,
    runtime: &Runtime,
    displaced: &Displaced,
    form: TrapForm,
    copy: Copy,
) -> Result<Pending, Refusal> {
    let mut flags = if form == TrapForm::Step { FLAG_STEPS } else { 0 };
    let mut routine = |condition| -> Result<Option<Label>, Refusal> {
        let Some(block) = Block::of(&displaced.points, condition) else {
            return Ok(None);
        };
        if block.calls() {
            flags |= FLAG_CALLS;
        }
        let start = code.here();
        emit_block(code, rare, runtime, &block.into_routine(), None)?;
        code.bytes(&[0xc3]); // ret
        Ok(Some(start))
    };
    let places = Places {
        fires: routine(FireCondition::Always)?,
        fires_leaving: routine(FireCondition::IfLeaves)?,
        // The copy of a stepped branch executes the fires itself. The routine is still emitted, so that both forms
        // have the same length.
        fires_taken: routine(FireCondition::IfTaken)?,
        detour: Some(copy.entry),
        copy: Some(copy.start),
        copy_end: Some(copy.end),
    };
    Ok(Pending {
        descriptor: code.label(),
        flags,
        places,
    })
}

/// Appends the descriptor; returns its label and its number of 8-byte words.
pub(crate) fn emit_descriptor(
    code: &mut Assembler,
    inside: &[Range<TargetAddress>],
    displaced: &Displaced,
    pending: Pending,
) -> (Label, usize) {
    let Pending {
        descriptor,
        flags,
        places,
    } = pending;
    let emulation = Emulation::of_instruction(&displaced.decode()).unwrap_or(Emulation {
        operation: Operation::Other,
        size: 8,
        condition: 0,
        destination: 0,
        source: Operand::Immediate(0),
    });
    let mut flags = flags;
    if emulation.touches_memory() || emulation.operation == Operation::Other {
        flags |= FLAG_TOUCHES_MEMORY;
    }
    if matches!(emulation.operation, Operation::Call | Operation::Return) {
        flags |= FLAG_STACK_OF_CALLS;
    }
    let inside = match places.fires_leaving {
        Some(_) => inside,
        None => &[],
    };
    code.bind(descriptor);
    let words = descriptor::emit(
        code,
        &emulation,
        displaced.address,
        displaced.bytes.len(),
        flags,
        places,
        inside,
    );
    (descriptor, words as usize)
}
