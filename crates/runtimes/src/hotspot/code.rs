//! Frames of HotSpot's code in a sample: as `agent/hotspot.c` walks them at a hit, which explains the theory.
//!
//! The stack is a copy from the moment of the sample. The code cache is read some milliseconds later. A piece of code
//! keeps its place as long as it exists. So the piece that is read there is the executed one, unless that was thrown
//! away meanwhile and another piece is in its place. Return addresses are believed only where the code describes
//! exactly them.

use nanoprobe_arena::layout::{HotSpot, RUNTIME_JAVA};

use super::Layout;
use crate::memory::{Memory, array, half, word};
use crate::{Frame, Object};

const HOPS_MAX: usize = 16384;
pub(super) const FRAME_BYTES_MAX: u64 = 1 << 20;
const SEGMENT_FREE: u8 = 255;
/// The first bytes of names of blobs.
const COMPILED: &[u8; 8] = b"nmethod\0";
const WRAPPER: &[u8; 8] = b"native n";

/// The kinds of code in the code cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Interpreter,
    Compiled,
    /// A native method's.
    Wrapper,
    Stub,
}

/// A piece of the code cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub(super) kind: Kind,
    /// 0: it is not known which one.
    pub(super) blob: u64,
    /// With the return address; 0: its frames have no fixed size.
    pub(super) frame_bytes: u64,
    pub(super) name: u64,
}

/// A frame of Java.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JavaFrame {
    /// A method or a stub, and the position in it.
    Known(Object, u32),
    /// A frame of which only this kind (`RUNTIME_*`) is known.
    Unknown(u64),
}

impl JavaFrame {
    /// A frame that stands for callers which are not known.
    pub fn unknown_callers() -> Frame {
        Frame::Unknown { kind: RUNTIME_JAVA }
    }
}

/// The code cache of a process, and the stack of a sample.
pub struct CodeCache<'a> {
    /// With its places: [`Layout::locate`].
    pub layout: &'a Layout,
    /// The memory of the process.
    pub memory: &'a dyn Memory,
    /// A word of the stack's copy.
    pub stack: &'a dyn Fn(u64) -> Option<u64>,
    /// The register that points to the bytecode, while the interpreter runs.
    pub bytecode: u64,
    /// Whether a module has an address.
    pub is_of_module: &'a dyn Fn(u64) -> bool,
}

impl CodeCache<'_> {
    pub(super) fn agent(&self) -> &HotSpot {
        &self.layout.agent
    }

    /// A word at an offset.
    pub(super) fn at(&self, address: u64, offset: u32) -> Option<u64> {
        word(self.memory, address.checked_add(offset.into())?)
    }

    /// A number of 32 bits.
    pub(super) fn number(&self, address: u64, offset: u32) -> Option<i32> {
        Some(half(self.memory, address.checked_add(offset.into())?)? as i32)
    }

    pub(super) fn short(&self, address: u64, offset: u32) -> Option<u16> {
        array(self.memory, address.checked_add(offset.into())?).map(u16::from_le_bytes)
    }

    /// How much of a piece's code is executed before its frames are complete.
    pub(super) fn complete(&self, piece: &Piece) -> Option<i32> {
        match self.agent().frame_complete_bytes {
            2 => Some(i32::from(self.short(piece.blob, self.agent().frame_complete)? as i16)),
            _ => self.number(piece.blob, self.agent().frame_complete),
        }
    }

    /// The address that a place of a blob holds: see `struct np_hotspot`.
    pub(super) fn place(&self, blob: u64, place: [u32; 2]) -> Option<u64> {
        let [address, addend] = place;
        let base = if address == 0 { blob } else { self.at(blob, address)? };
        let addend = if addend == 0 { 0 } else { self.number(blob, addend)? };
        base.checked_add_signed(addend.into())
    }

    /// The piece of the code cache at an address; `None`: the address is not in it.
    pub fn find(&self, address: u64) -> Option<Piece> {
        let agent = self.agent();
        let mut heaps = agent.heap_low.iter().zip(agent.heap_high).zip(agent.heap_map);
        let ((low, _), map) = heaps.find(|((low, high), _)| (**low..*high).contains(&address))?;
        let unknown = Piece {
            kind: Kind::Stub,
            blob: 0,
            frame_bytes: 0,
            name: 0,
        };
        if (agent.interpreter_low..agent.interpreter_high).contains(&address) {
            return Some(Piece {
                kind: Kind::Interpreter,
                ..unknown
            });
        }
        let found = self
            .block(*low, map, address)
            .and_then(|block| self.describe(block, address));
        Some(found.unwrap_or(unknown))
    }

    /// The block around an address: HotSpot's map leads from each segment of a block back to the block's first segment.
    fn block(&self, low: u64, map: u64, address: u64) -> Option<u64> {
        let bits = self.agent().segment_bits & 63;
        let mut segment = (address - low) >> bits;
        for _ in 0..HOPS_MAX {
            let [back] = array::<1>(self.memory, map.checked_add(segment)?)?;
            match back {
                0 => return low.checked_add(segment << bits),
                SEGMENT_FREE => return None,
                _ => segment = segment.checked_sub(back.into())?,
            }
        }
        None
    }

    fn describe(&self, block: u64, address: u64) -> Option<Piece> {
        let agent = self.agent();
        let blob = block.checked_add(agent.block_bytes.into())?;
        let [used] = array::<1>(self.memory, block.checked_add(agent.block_used.into())?)?;
        let bytes = u64::try_from(self.number(blob, agent.blob_bytes)?).ok()?;
        let words = u64::try_from(self.number(blob, agent.frame_words)?.max(0)).ok()?;
        if used != 1 || address.checked_sub(blob)? >= bytes || words > FRAME_BYTES_MAX / 8 {
            return None;
        }
        let name = self.at(blob, agent.blob_name)?;
        let kind = match &array::<8>(self.memory, name)? {
            COMPILED => Kind::Compiled,
            WRAPPER => Kind::Wrapper,
            _ => Kind::Stub,
        };
        Some(Piece {
            kind,
            blob,
            frame_bytes: words * 8,
            name,
        })
    }
}
