//! The results of a run, and the first difference between two of them.

use crate::executor::{End, Fault, Outcome};
use crate::state::{NAMES, XLayout};
use crate::tactics::Patching;

/// The result of a run, with memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Found {
    pub outcome: Outcome,
    pub data: Vec<u8>,
    pub stack: Vec<u8>,
}

/// The start of the description of a difference in the flags.
pub const FLAGS_DIFFER: &str = "flags";

/// The first difference, in words. The stack is compared from `lowest` on.
pub fn first_difference(
    native: &Found,
    patched: &Found,
    patching: &Patching,
    lowest: u64,
    layout: &XLayout,
) -> Option<String> {
    let (left, right) = (&native.outcome, &patched.outcome);
    let (end, pushed) = match right.end {
        End::Fault(fault) => as_reported(fault, patching),
        end => (end, 0),
    };
    if left.end != end {
        return Some(format!("the end: {:x?}, expected {:x?}", end, left.end));
    }
    let (from, to) = (&left.registers, &right.registers);
    for (index, name) in NAMES.iter().enumerate() {
        if from.general[index] != to.general[index] {
            return Some(format!(
                "{name}: {:#x}, expected {:#x}",
                to.general[index], from.general[index]
            ));
        }
    }
    let others = [
        ("rsp", from.rsp, to.rsp + 8 * pushed),
        (FLAGS_DIFFER, from.flags, to.flags),
        ("base of fs", from.fs_base, to.fs_base),
        ("base of gs", from.gs_base, to.gs_base),
    ];
    if let Some((name, expected, found)) = others.iter().find(|(_, expected, found)| expected != found) {
        return Some(format!("{name}: {found:#x}, expected {expected:#x}"));
    }
    let differs = |left: &[u8], right: &[u8]| (0..left.len()).find(|at| left[*at] != right[*at]);
    if let Some(at) = differs(&left.image, &right.image) {
        return Some(format!(
            "{}: byte {:#x}, expected {:#x}",
            layout.name(at),
            right.image[at],
            left.image[at]
        ));
    }
    if let Some(at) = differs(&native.data, &patched.data) {
        return Some(format!(
            "data + {at:#x}: {:#x}, expected {:#x}",
            patched.data[at], native.data[at]
        ));
    }
    // Superfluous pushes leave their words in the red zone.
    let lowest = if pushed == 0 { lowest } else { lowest.max(from.rsp) };
    let below = (lowest & 0xffff) as usize;
    if let Some(at) = differs(&native.stack[below..], &patched.stack[below..]) {
        let at = at + below;
        let from_top = at as i64 - crate::memory::STACK_TOP as i64;
        return Some(format!(
            "stack, {from_top} from rsp: {:#x}, expected {:#x}",
            patched.stack[at], native.stack[at]
        ));
    }
    None
}

/// The address that the agent reports to the program's handler (`agent/trap.c`), and the number of words by which rsp
/// is raised.
fn as_reported(fault: Fault, patching: &Patching) -> (End, u64) {
    let behind = u64::from(fault.signal == libc::SIGTRAP);
    let (original, pushed) = patching.original_address(fault.rip.wrapping_sub(behind));
    let rip = original.wrapping_add(behind);
    let is_instruction = matches!(fault.signal, libc::SIGILL | libc::SIGFPE) && fault.address == fault.rip;
    let end = End::Fault(Fault {
        rip,
        address: if is_instruction { rip } else { fault.address },
        ..fault
    });
    (end, pushed)
}
