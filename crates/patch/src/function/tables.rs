//! Jump tables: where a computed jump leads, read from the image's constants.
//!
//! ```text
//!   cmp edi, 5              how many entries there are        cmp rax, 5
//!   ja  default                                               ja  default
//!   lea rdx, [rip+table]    where they are                    jmp [rax*8+table]       absolute, 8 bytes each
//!   movsxd rax, [rdx+rdi*4] relative to the table, 4 bytes each
//!   add rax, rdx
//!   jmp rax
//! ```
//!
//! Every value is checked: if an entry leads out of all code, this is no table. Where no comparison is found, entries
//! are taken as long as they lead to instructions of the function itself; then nothing is proved about the jump.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::map::FunctionMap;
use super::surroundings::Surroundings;
use crate::TargetAddress;

/// The most entries of a table with a comparison before it; the largest switches have some thousands.
const BOUNDED_MAX: u64 = 16384;
/// The most entries of a table without a comparison.
const UNBOUNDED_MAX: u64 = 1024;
/// How far before the jump the load and the comparison are searched, in instructions. Compilers move the table's
/// address out of loops.
const NEAR: usize = 24;
const FAR: usize = 512;

/// A table.
pub(super) struct Table {
    pub targets: Vec<TargetAddress>,
    /// Whether the number of its entries is known.
    pub bounded: bool,
}

/// How an entry becomes an address.
#[derive(Clone, Copy)]
enum Entry {
    /// 4 bytes, signed, relative to an address, which is usually the table's.
    Relative { origin: u64 },
    /// 8 bytes, an address.
    Absolute,
}

/// The table of the indirect jump at an offset; `None` if it has no table of a known form.
pub(super) fn resolve(map: &FunctionMap, jump: u32, surroundings: &dyn Surroundings) -> Option<Table> {
    let code = map.code();
    let at = code
        .binary_search_by_key(&jump, |instruction| instruction.offset)
        .ok()?;
    let before = Before { map, at };
    let jump = before.decode(at)?;
    let load = before.load(&jump)?;
    let base = match load.base {
        Register::None => load.displacement,
        register => before.constant(load.at, register)?.wrapping_add(load.displacement),
    };
    let bound = before.bound(load.at, load.index).filter(|count| *count <= BOUNDED_MAX);
    let table = bound.and_then(|count| read(map, base, load.entry, Some(count), surroundings));
    table.or_else(|| read(map, base, load.entry, None, surroundings))
}

/// The entries of a table at `base`. With a bound, their number is given, and all of them must lead to code. Without a
/// bound, the table ends at the first entry that leads to no instruction of the function.
fn read(
    map: &FunctionMap,
    base: u64,
    entry: Entry,
    bound: Option<u64>,
    surroundings: &dyn Surroundings,
) -> Option<Table> {
    let width = match entry {
        Entry::Relative { .. } => 4,
        Entry::Absolute => 8,
    };
    // A table in the text can bring the linear decode out of step.
    let in_text = map.is_inside(TargetAddress(base));
    let is_possible = |target: TargetAddress| match map.offset(target).filter(|offset| *offset < map.code_size()) {
        Some(_) => in_text || map.starts_instruction(target),
        None => map.is_inside(target) || surroundings.is_fragment(target),
    };
    let mut targets = Vec::new();
    for index in 0..bound.unwrap_or(UNBOUNDED_MAX) {
        let address = TargetAddress(base.wrapping_add(index * width));
        let bytes = surroundings.constant(address, width as usize);
        let target = bytes.and_then(|bytes| match entry {
            Entry::Relative { origin } => {
                Some(origin.wrapping_add_signed(i32::from_le_bytes(bytes.try_into().ok()?).into()))
            }
            Entry::Absolute => Some(u64::from_le_bytes(bytes.try_into().ok()?)),
        });
        match (target.map(TargetAddress), bound) {
            (Some(target), Some(_)) if is_possible(target) => targets.push(target),
            (_, Some(_)) => return None,
            (Some(target), None) if map.starts_instruction(target) => targets.push(target),
            (_, None) => break,
        }
    }
    (targets.len() > 1).then_some(Table {
        targets,
        bounded: bound.is_some(),
    })
}

/// The load of an entry.
struct Load {
    /// Index of the instruction.
    at: usize,
    base: Register,
    index: Register,
    displacement: u64,
    entry: Entry,
}

/// The instructions before a jump, in the order of their addresses.
struct Before<'a> {
    map: &'a FunctionMap,
    at: usize,
}

impl Before<'_> {
    fn decode(&self, index: usize) -> Option<Instruction> {
        let instruction = *self.map.code().get(index)?;
        let address = self.map.address(instruction.offset).0;
        Some(Decoder::with_ip(64, self.map.bytes_of(instruction), address, DecoderOptions::NONE).decode())
    }

    fn nearest(&self, from: usize, within: usize) -> impl Iterator<Item = (usize, Instruction)> + '_ {
        let lowest = from.saturating_sub(within);
        (lowest..from)
            .rev()
            .filter_map(|index| Some((index, self.decode(index)?)))
    }

    fn load(&self, jump: &Instruction) -> Option<Load> {
        if jump.op0_kind() == OpKind::Memory {
            return absolute_load(self.at, jump);
        }
        let register = jump.op0_register().full_register();
        // The two registers whose sum is the target.
        let mut sum: Option<[Register; 2]> = None;
        for (at, instruction) in self.nearest(self.at, NEAR) {
            if instruction.op0_kind() != OpKind::Register {
                continue;
            }
            let written = instruction.op0_register().full_register();
            match (sum, instruction.mnemonic()) {
                (None, Mnemonic::Add) if written == register && instruction.op1_kind() == OpKind::Register => {
                    sum = Some([register, instruction.op1_register().full_register()]);
                }
                (None, Mnemonic::Lea) if written == register && is_plain_sum(&instruction) => {
                    sum = Some([instruction.memory_base(), instruction.memory_index()]);
                }
                (None, Mnemonic::Mov) if written == register => return absolute_load(at, &instruction),
                (None, _) if written == register => return None,
                (Some(sum), Mnemonic::Movsxd) if sum.contains(&written) && instruction.op1_kind() == OpKind::Memory => {
                    return self.relative_load(at, &instruction, sum);
                }
                _ => {}
            }
        }
        None
    }

    /// The load `movsxd rax, [table+index*4]`; the address of the table, or another address, is added to its result.
    fn relative_load(&self, at: usize, instruction: &Instruction, sum: [Register; 2]) -> Option<Load> {
        let base = instruction.memory_base().full_register();
        let written = instruction.op0_register().full_register();
        let added = sum.into_iter().find(|register| *register != written)?;
        if instruction.memory_index_scale() != 4 {
            return None;
        }
        Some(Load {
            at,
            base,
            index: instruction.memory_index().full_register(),
            displacement: instruction.memory_displacement64(),
            entry: Entry::Relative {
                origin: self.constant(self.at, added)?,
            },
        })
    }

    /// The address that was last loaded into a register: `lea reg, [rip+x]`, `mov reg, x`.
    fn constant(&self, from: usize, register: Register) -> Option<u64> {
        let mut writers = self.nearest(from, FAR).filter(|(_, instruction)| {
            instruction.op0_kind() == OpKind::Register && instruction.op0_register().full_register() == register
        });
        writers.find_map(|(_, instruction)| match instruction.mnemonic() {
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => Some(instruction.ip_rel_memory_address()),
            Mnemonic::Mov if matches!(instruction.code(), Code::Mov_r32_imm32 | Code::Mov_r64_imm64) => {
                Some(instruction.immediate(1))
            }
            _ => None,
        })
    }

    /// The number of entries that the comparison before the load allows. It compares the index, or the value from which
    /// the index was copied.
    fn bound(&self, from: usize, index: Register) -> Option<u64> {
        let mut index = Operand::Register(index);
        let mut branch = None;
        for (_, instruction) in self.nearest(from, NEAR) {
            if instruction.is_jcc_short_or_near() {
                branch = Some(instruction.mnemonic());
                continue;
            }
            if Operand::of(&instruction, 0) != Some(index) {
                continue;
            }
            let limit = instruction
                .try_immediate(1)
                .ok()
                .filter(|_| instruction.op_count() == 2);
            match (instruction.mnemonic(), limit) {
                (Mnemonic::Cmp, Some(limit)) => {
                    return match branch? {
                        Mnemonic::Ja | Mnemonic::Jbe => limit.checked_add(1),
                        Mnemonic::Jae | Mnemonic::Jb => Some(limit),
                        _ => None,
                    };
                }
                (Mnemonic::And, Some(mask)) => return mask.checked_add(1),
                (Mnemonic::Cmp | Mnemonic::Test, _) => {}
                (Mnemonic::Mov | Mnemonic::Movzx, None) => index = Operand::of(&instruction, 1)?,
                _ => return None,
            }
        }
        None
    }
}

/// A place from which an index may come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operand {
    /// The full register: `rax` for `eax` and `al`.
    Register(Register),
    /// Base, index, scale, displacement.
    Memory(Register, Register, u32, u64),
}

impl Operand {
    fn of(instruction: &Instruction, operand: u32) -> Option<Operand> {
        match instruction.op_kind(operand) {
            OpKind::Register => Some(Operand::Register(instruction.op_register(operand).full_register())),
            OpKind::Memory => Some(Operand::Memory(
                instruction.memory_base(),
                instruction.memory_index(),
                instruction.memory_index_scale(),
                instruction.memory_displacement64(),
            )),
            _ => None,
        }
    }
}

/// `lea rcx, [rcx+r11]`.
fn is_plain_sum(instruction: &Instruction) -> bool {
    let registers = [instruction.memory_base(), instruction.memory_index()];
    !registers.contains(&Register::None)
        && instruction.memory_index_scale() == 1
        && instruction.memory_displacement64() == 0
}

fn absolute_load(at: usize, instruction: &Instruction) -> Option<Load> {
    let has_index = instruction.memory_index() != Register::None && instruction.memory_index_scale() == 8;
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    has_index.then(|| Load {
        at,
        base: base.full_register(),
        index: index.full_register(),
        displacement: instruction.memory_displacement64(),
        entry: Entry::Absolute,
    })
}
