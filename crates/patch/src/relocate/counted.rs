//! loop, loope, loopne, jcxz, jecxz, jrcxz: they have 8-bit displacements only, and no flags may change.
//!
//! ```text
//!   loop rel8                loop 1f                       an address-size prefix (ecx instead of rcx) is kept
//!                            jmp  2f
//!                         1: jmp  rel32'                   or: jmp taken, with handlers on that edge
//!                         2:
//! ```

use super::{Original, Relocated};
use crate::Refusal;
use crate::assemble::{Assembler, Label};

pub(super) fn relocate(
    code: &mut Assembler,
    original: Original<'_>,
    taken: Option<Label>,
) -> Result<Relocated, Refusal> {
    let target = original.branch_target()?;
    let Some((prefixes, [opcode @ 0xe0..=0xe3, _])) = original.bytes.split_last_chunk::<2>() else {
        return Err(original.unmovable("its opcode was not found"));
    };
    let (branch, behind) = (code.label(), code.label());
    if prefixes.contains(&0x67) {
        code.bytes(&[0x67]);
    }
    code.short(&[*opcode], branch);
    code.jump(behind);
    code.bind(branch);
    match taken {
        Some(label) => code.jump(label),
        None => code.external(&[0xe9], target),
    }
    code.bind(behind);
    Ok(Relocated::default())
}
