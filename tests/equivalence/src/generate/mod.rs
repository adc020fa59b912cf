//! The sources of sequences.

mod allowed;
mod branches;
mod opcodes;
mod real;
mod templates;

use iced_x86::{FlowControl, Instruction, Mnemonic};

use crate::random::Random;
use crate::sequence::{Item, Sequence, Terminator};

pub use opcodes::Opcodes;
pub use real::RealCode;

/// The sources from which sequences are made.
pub struct Generator {
    pub opcodes: Opcodes,
    pub real: RealCode,
}

/// The kinds of sequences, in the order in which they are counted.
pub const KINDS: [&str; 3] = ["opcodes", "real code, mutated", "branches"];

/// The most pushes and pops by which a sequence moves rsp.
const STACK_MOVES_MAX: u64 = 5;

/// The parts of a sequence so far.
struct Parts {
    items: Vec<Item>,
    pushes: u64,
    pops: u64,
    loose_counts: bool,
}

impl Parts {
    fn new() -> Parts {
        Parts {
            items: Vec::new(),
            pushes: 0,
            pops: 0,
            loose_counts: false,
        }
    }

    /// Adds an instruction, unless the stack pointer would move too far.
    fn push(&mut self, item: Item, instruction: &Instruction) {
        match instruction.mnemonic() {
            Mnemonic::Pop | Mnemonic::Popf | Mnemonic::Popfq if self.pops >= STACK_MOVES_MAX => return,
            Mnemonic::Push | Mnemonic::Pushf | Mnemonic::Pushfq if self.pushes >= STACK_MOVES_MAX => return,
            Mnemonic::Pop => self.pops += 1,
            Mnemonic::Push | Mnemonic::Pushf | Mnemonic::Pushfq => self.pushes += 1,
            _ => {}
        }
        self.items.push(item);
    }

    fn finish(self, branchy: bool, random: &mut Random) -> Sequence {
        let long_nop: &[u8] = &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        let padding = match random.below(8) {
            0 => vec![],
            1 => vec![0xcc; random.below(9)],
            2 => vec![0x90; random.below(9)],
            3 => vec![0x0f, 0x1f, 0x44, 0, 0, 0xcc],
            4 => vec![0x66, 0x90, 0x0f, 0x1f, 0],
            // Padding for springboards, with and without nops that a springboard overwrites in part.
            5 => vec![0xcc; 6 + random.below(20)],
            6 => [long_nop, &vec![0x90; random.below(4)]].concat(),
            _ => [&[0x0f, 0x1f, 0x40, 0][..], long_nop, &[0x0f, 0x1f, 0]].concat(),
        };
        let terminator = match random.below(4) {
            0 | 1 if self.pushes == self.pops => Terminator::Return,
            2 => Terminator::Jump,
            _ => Terminator::FallThrough,
        };
        Sequence {
            items: self.items,
            terminator,
            padding,
            branchy,
            loose_counts: self.loose_counts,
            words_popped: self.pops,
        }
    }
}

impl Generator {
    /// A sequence, and which of [`KINDS`] it is.
    pub fn sequence(&mut self, random: &mut Random) -> (Sequence, usize) {
        match random.below(8) {
            0..4 => (self.straight(random), 0),
            4 | 5 => (self.real.sequence(&mut self.opcodes, random), 1),
            _ => (branches::sequence(self, random), 2),
        }
    }

    fn straight(&mut self, random: &mut Random) -> Sequence {
        let mut parts = Parts::new();
        for _ in 0..1 + random.below(7) {
            if random.once_in(12) {
                templates::any(&mut parts, random);
                continue;
            }
            let generated = self.opcodes.any(random);
            // An instruction that always faults ends a sequence: seldom.
            if generated.instruction.flow_control() == FlowControl::Exception && !random.once_in(8) {
                continue;
            }
            parts.push(generated.item, &generated.instruction);
        }
        if parts.items.is_empty() {
            parts.items.push(Item::Code(vec![0x90]));
        }
        parts.finish(false, random)
    }
}
