//! Conditional jumps on flags.
//!
//! ```text
//!   jcc rel8 / jcc rel32     jcc rel32'
//!   with handlers on the     jcc taken          ...   taken: fires
//!   taken edge                                               jmp rel32'
//! ```
//!
//! Likewise when the target is a later instruction of the same run: `taken` is its place in the detour.

use iced_x86::ConditionCode;

use super::{Original, Relocated};
use crate::Refusal;
use crate::assemble::{Assembler, Label};

pub(super) fn relocate(
    code: &mut Assembler,
    original: Original<'_>,
    taken: Option<Label>,
) -> Result<Relocated, Refusal> {
    let condition = match original.instruction.condition_code() {
        ConditionCode::o => 0,
        ConditionCode::no => 1,
        ConditionCode::b => 2,
        ConditionCode::ae => 3,
        ConditionCode::e => 4,
        ConditionCode::ne => 5,
        ConditionCode::be => 6,
        ConditionCode::a => 7,
        ConditionCode::s => 8,
        ConditionCode::ns => 9,
        ConditionCode::p => 10,
        ConditionCode::np => 11,
        ConditionCode::l => 12,
        ConditionCode::ge => 13,
        ConditionCode::le => 14,
        ConditionCode::g => 15,
        _ => return Err(original.unmovable("its condition is not known")),
    };
    let target = original.branch_target()?;
    match taken {
        Some(label) => code.jump_if(condition, label),
        None => code.external(&[0x0f, 0x80 | condition], target),
    }
    Ok(Relocated::default())
}
