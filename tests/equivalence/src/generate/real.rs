//! Code of real programs: pieces of functions, with bits changed.

use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::opcodes::Opcodes;
use super::{Parts, branches};
use crate::random::Random;
use crate::sequence::{Item, Sequence, Target};

/// The bytes of functions.
pub struct RealCode {
    functions: Vec<Vec<u8>>,
}

const FUNCTIONS_MAX: usize = 4000;
const BYTES_MAX: usize = 2048;

impl RealCode {
    /// Functions of this program and of the system's libc and shell, as far as they have symbols.
    pub fn read() -> RealCode {
        let files = [
            "/proc/self/exe",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/x86_64-linux-gnu/libm.so.6",
            "/lib64/libc.so.6",
        ];
        let mut functions: Vec<Vec<u8>> = files.iter().flat_map(|file| read(Path::new(file))).collect();
        // The choice is the same in each run on the same files, and covers all of them.
        functions.sort_unstable();
        functions.dedup();
        let step = functions.len().div_ceil(FUNCTIONS_MAX).max(1);
        let functions: Vec<Vec<u8>> = functions.into_iter().step_by(step).collect();
        assert!(!functions.is_empty(), "no symbols in the program itself");
        RealCode { functions }
    }

    /// Some instructions in a row.
    pub(super) fn sequence(&self, opcodes: &mut Opcodes, random: &mut Random) -> Sequence {
        loop {
            let function = &self.functions[random.below(self.functions.len())];
            let found: Vec<Instruction> = Decoder::with_ip(64, function, 0, DecoderOptions::NONE)
                .into_iter()
                .collect();
            let first = random.below(found.len());
            let window = &found[first..(first + 3 + random.below(10)).min(found.len())];
            let mut parts = Parts::new();
            let mut branchy = false;
            for instruction in window {
                let at = instruction.ip() as usize;
                let mut bytes = function[at..at + instruction.len()].to_vec();
                if random.once_in(4) {
                    let byte = random.below(bytes.len());
                    bytes[byte] ^= 1 << random.below(8);
                }
                // A changed instruction may be longer than before.
                bytes.extend(random.next().to_le_bytes());
                if let Some(item) = branch(instruction, window, &bytes) {
                    branchy = true;
                    parts.items.push(item);
                } else if let Some(generated) = opcodes.decode(&bytes, random) {
                    parts.push(generated.item, &generated.instruction);
                }
            }
            if parts.items.len() < 2 {
                continue;
            }
            if branchy {
                return branches::close(parts, random);
            }
            return parts.finish(false, random);
        }
    }
}

/// A direct branch leads roughly to the new place of its instruction, or to a callee if it led outside.
fn branch(instruction: &Instruction, window: &[Instruction], bytes: &[u8]) -> Option<Item> {
    let bytes = &bytes[..instruction.len()];
    let target = instruction.near_branch_target();
    let index = window.iter().position(|other| other.ip() == target);
    if instruction.is_call_near() {
        let opcode = bytes.split_last_chunk::<4>()?.0;
        return (opcode == [0xe8]).then(|| Item::Near(vec![0xe8], Target::Callee(target as usize)));
    }
    let target = Target::Item(index.unwrap_or(window.len()));
    if instruction.is_jcc_short() || instruction.is_jmp_short() || instruction.is_loop() || instruction.is_jcx_short() {
        let opcode = bytes.split_last()?.1;
        return matches!(opcode, [0x70..=0x7f | 0xeb | 0xe0..=0xe3]).then(|| Item::Short(opcode.to_vec(), target));
    }
    if instruction.is_jcc_near() || instruction.is_jmp_near() {
        let opcode = bytes.split_last_chunk::<4>()?.0;
        return matches!(opcode, [0xe9] | [0x0f, 0x80..=0x8f]).then(|| Item::Near(opcode.to_vec(), target));
    }
    None
}

fn read(path: &Path) -> Vec<Vec<u8>> {
    let Ok(bytes) = std::fs::read(path) else {
        return Vec::new();
    };
    let Ok(file) = object::File::parse(bytes.as_slice()) else {
        return Vec::new();
    };
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let function = |symbol: object::Symbol<'_, '_>| {
        let section = file.section_by_index(symbol.section_index()?).ok()?;
        let size = (symbol.size() as usize).min(BYTES_MAX);
        let code = section.data_range(symbol.address(), size as u64).ok()??;
        (symbol.kind() == SymbolKind::Text && size >= 8).then(|| code.to_vec())
    };
    symbols.filter_map(function).collect()
}
