//! Sequences of instructions before they have an address: they can be laid out anywhere, and shortened.

use crate::memory::{Arena, POINTERS, POINTERS_MAX, write};

/// The target of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// An item of the sequence; the index after the last one is its terminator.
    Item(usize),
    /// One of the [`CALLEES`], after the sequence.
    Callee(usize),
}

/// A part of a sequence that stays together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Instructions that may lie anywhere.
    Code(Vec<u8>),
    /// One instruction with a 32-bit displacement at `field` to somewhere in the data.
    Relative {
        bytes: Vec<u8>,
        field: usize,
        data_offset: u64,
    },
    /// Bytes that end in an 8-bit displacement to the target. If the target is too far away, a nop takes their place.
    Short(Vec<u8>, Target),
    /// Bytes that end in a 32-bit displacement to the target.
    Near(Vec<u8>, Target),
    /// Several instructions that belong together.
    Together(Vec<Item>),
}

/// The end of a sequence, after the last item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminator {
    /// `ret`, to the exit pad.
    Return,
    /// `jmp` to the exit pad, the last instruction of the function.
    Jump,
    /// `jmp` to the exit pad, after the function's end.
    FallThrough,
}

/// The callees. The return address goes into the results, in a form that does not look like a
/// pointer into the code: code that reads the code would read the patches.
pub const CALLEES: [&[u8]; 4] = [
    // adc rax, [rsp]; bswap rax; ret
    &[0x48, 0x13, 0x04, 0x24, 0x48, 0x0f, 0xc8, 0xc3],
    // mov r9, [rsp]; bswap r9; lea r10, [r10 + r9]; mov r9d, 3; ret
    &[
        0x4c, 0x8b, 0x0c, 0x24, 0x49, 0x0f, 0xc9, 0x4f, 0x8d, 0x14, 0x0a, 0x41, 0xb9, 3, 0, 0, 0, 0xc3,
    ],
    // pop rax; push rax; bswap rax; mov [rbx], rax; ret
    &[0x58, 0x50, 0x48, 0x0f, 0xc8, 0x48, 0x89, 0x03, 0xc3],
    // add qword [rsp], 0; mov r11d, 5; ret
    &[0x48, 0x83, 0x04, 0x24, 0x00, 0x41, 0xbb, 5, 0, 0, 0, 0xc3],
];

#[derive(Clone, Debug)]
pub struct Sequence {
    pub items: Vec<Item>,
    pub terminator: Terminator,
    /// The bytes between the function's end and the callees.
    pub padding: Vec<u8>,
    /// Whether the sequence has branches. If so, single steps count how often each instruction is executed.
    pub branchy: bool,
    /// Whether points fire a different number of times in each run, because transactions abort at random.
    pub loose_counts: bool,
    /// The most words by which rsp may rise, without branches.
    pub words_popped: u64,
}

/// A sequence at an address.
#[derive(Clone, Debug)]
pub struct Laid {
    /// The whole code.
    pub bytes: Vec<u8>,
    /// The function's part of the code.
    pub size: u64,
    /// The items' part of the code, without the terminator.
    pub end_of_items: u64,
    /// Whether the sequence ends with a `ret`.
    pub returns: bool,
}

impl Sequence {
    /// This sequence without one item.
    pub fn without(&self, index: usize) -> Sequence {
        let mut shorter = self.clone();
        shorter.items.remove(index);
        for item in &mut shorter.items {
            if let Some(Target::Item(target)) = item.target_mut()
                && *target > index
            {
                *target -= 1;
            }
        }
        shorter
    }

    /// Lays the sequence out at the arena's code, and the pointers to its items in `data`.
    pub fn lay_out(&self, arena: &Arena, data: &mut [u8]) -> Laid {
        let mut starts = Vec::with_capacity(self.items.len() + 1);
        let mut at = arena.code();
        for item in &self.items {
            starts.push(at);
            at += item.length() as u64;
        }
        starts.push(at);
        let terminator: &[u8] = match self.terminator {
            Terminator::Return => &[0xc3],
            Terminator::Jump | Terminator::FallThrough => &[0xe9, 0, 0, 0, 0],
        };
        let size = at - arena.code()
            + if self.terminator == Terminator::FallThrough {
                0
            } else {
                terminator.len() as u64
            };
        let mut callee = at + (terminator.len() + self.padding.len()) as u64;
        let mut callees = Vec::new();
        for code in CALLEES {
            callees.push(callee);
            callee += code.len() as u64;
        }
        let address_of = |target: &Target| match target {
            Target::Item(index) => starts.get(*index).copied().unwrap_or(at),
            Target::Callee(index) => callees[index % callees.len()],
        };

        let mut bytes = Vec::new();
        for item in &self.items {
            item.append(&mut bytes, arena, &address_of);
        }
        bytes.extend_from_slice(terminator);
        if terminator.len() == 5 {
            let distance = displacement(at + 5, arena.exit_pad()) as i32;
            let end = bytes.len();
            bytes[end - 4..].copy_from_slice(&distance.to_le_bytes());
        }
        bytes.extend_from_slice(&self.padding);
        bytes.extend(CALLEES.concat());
        for (index, start) in starts.iter().take(POINTERS_MAX).enumerate() {
            let slot = POINTERS as usize + 8 * index;
            data[slot..slot + 8].copy_from_slice(&start.to_le_bytes());
        }
        Laid {
            bytes,
            size,
            end_of_items: at - arena.code(),
            returns: self.terminator == Terminator::Return,
        }
    }
}

fn displacement(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from) as i64
}

impl Item {
    fn length(&self) -> usize {
        match self {
            Item::Code(bytes) | Item::Relative { bytes, .. } => bytes.len(),
            Item::Short(bytes, _) => bytes.len() + 1,
            Item::Near(bytes, _) => bytes.len() + 4,
            Item::Together(items) => items.iter().map(Item::length).sum(),
        }
    }

    /// The target, if the item is a branch.
    pub fn target_mut(&mut self) -> Option<&mut Target> {
        match self {
            Item::Code(_) | Item::Relative { .. } => None,
            Item::Short(_, target) | Item::Near(_, target) => Some(target),
            Item::Together(items) => items.iter_mut().find_map(Item::target_mut),
        }
    }

    fn append(&self, bytes: &mut Vec<u8>, arena: &Arena, address_of: &dyn Fn(&Target) -> u64) {
        let here = arena.code() + bytes.len() as u64;
        let end = here + self.length() as u64;
        match self {
            Item::Code(code) => bytes.extend_from_slice(code),
            Item::Relative {
                bytes: code,
                field,
                data_offset,
            } => {
                let distance = displacement(end, arena.data() + data_offset) as i32;
                let start = bytes.len();
                bytes.extend_from_slice(code);
                bytes[start + field..start + field + 4].copy_from_slice(&distance.to_le_bytes());
            }
            Item::Short(code, target) => match i8::try_from(displacement(end, address_of(target))) {
                Ok(distance) => {
                    bytes.extend_from_slice(code);
                    bytes.push(distance as u8);
                }
                Err(_) => bytes.resize(bytes.len() + code.len() + 1, 0x90),
            },
            Item::Near(code, target) => {
                let distance = displacement(end, address_of(target)) as i32;
                bytes.extend_from_slice(code);
                bytes.extend_from_slice(&distance.to_le_bytes());
            }
            Item::Together(items) => items.iter().for_each(|item| item.append(bytes, arena, address_of)),
        }
    }
}

impl Laid {
    pub fn write(&self, arena: &Arena) {
        write(arena.code(), &self.bytes);
    }
}
