//! Frames of HotSpot's code in a sample: as `agent/hotspot.c` walks them at a hit, which explains the theory.
//!
//! The stack is a copy from the moment of the sample. The code cache is read some milliseconds later. A piece of code
//! keeps its place as long as it exists. So the piece that is read there is the executed one, unless that was thrown
//! away meanwhile and another piece is in its place. Return addresses are believed only where the code describes
//! exactly them.
//!
//! Most samples interrupt compiled code anywhere in it. Descriptions exist for calls only. So of an interrupted frame
//! only the outermost function is certain, and its text says so.

use nanoprobe_arena::layout::{
    HotSpot, POSITION_INLINED, POSITION_NONE, RUNTIME_JAVA, RUNTIME_JAVA_CODE, RUNTIME_JAVA_INTERPRETER,
    RUNTIME_JAVA_STUB,
};

use super::Layout;
use super::method::method_at;
use crate::memory::{Memory, array, half, word};
use crate::{Cursor, Frame, Object};

const HOPS_MAX: usize = 16384;
const DESCRIPTIONS_MAX: u64 = 1 << 20;
pub(super) const FRAME_BYTES_MAX: u64 = 1 << 20;
/// More functions are not inlined into each other.
const INLINED_MAX: usize = 256;
const SEGMENT_FREE: u8 = 255;
/// Below the interpreter's frame pointer.
const INTERPRETED_METHOD: u64 = 24;
const INTERPRETED_BYTECODE: u64 = 64;
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
    name: u64,
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
    fn number(&self, address: u64, offset: u32) -> Option<i32> {
        Some(half(self.memory, address.checked_add(offset.into())?)? as i32)
    }

    fn short(&self, address: u64, offset: u32) -> Option<u16> {
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

    /// The functions of a frame, innermost first.
    pub fn functions(&self, piece: &Piece, cursor: &Cursor) -> Vec<JavaFrame> {
        let agent = self.agent();
        let method_of_blob = || self.object(self.at(piece.blob, agent.method)?);
        let one = |object: Option<Object>, position, kind| match object {
            Some(object) => vec![JavaFrame::Known(object, position)],
            None => vec![JavaFrame::Unknown(kind)],
        };
        match piece.kind {
            Kind::Interpreter => vec![
                self.interpreted(cursor)
                    .unwrap_or(JavaFrame::Unknown(RUNTIME_JAVA_INTERPRETER)),
            ],
            _ if piece.blob == 0 => vec![JavaFrame::Unknown(RUNTIME_JAVA_CODE)],
            Kind::Compiled => match self.scope(piece, cursor).and_then(|scope| self.inlined(piece, scope)) {
                Some(functions) => functions,
                None => one(method_of_blob(), POSITION_INLINED, RUNTIME_JAVA_CODE),
            },
            Kind::Wrapper => one(method_of_blob(), POSITION_NONE, RUNTIME_JAVA_CODE),
            Kind::Stub => {
                let object = Object {
                    kind: RUNTIME_JAVA_STUB,
                    address: piece.blob,
                    check: piece.name as u32 & 0x1_ffff,
                };
                one(Some(object), POSITION_NONE, RUNTIME_JAVA_CODE)
            }
        }
    }

    fn object(&self, method: u64) -> Option<Object> {
        method_at(self.memory, self.layout, method)
    }

    /// A frame of the interpreter. In the innermost one, the place in the bytecodes is in a register.
    fn interpreted(&self, cursor: &Cursor) -> Option<JavaFrame> {
        let agent = self.agent();
        let method = (self.stack)(cursor.rbp.checked_sub(INTERPRETED_METHOD)?)?;
        let saved = (self.stack)(cursor.rbp.checked_sub(INTERPRETED_BYTECODE)?)?;
        let constant = self.at(method, agent.const_method)?;
        let count = u64::from(self.short(constant, agent.code_bytes)?);
        let start = constant.checked_add(agent.const_method_bytes.into())?;
        let place = |bytecode: u64| bytecode.checked_sub(start).filter(|place| *place < count);
        let position = match cursor.exact {
            true => place(self.bytecode),
            // A native method has no bytecodes.
            false if count == 0 && (saved == 0 || saved == start) => None,
            false => Some(place(saved)?),
        };
        let position = position.map_or(POSITION_NONE, |place| place as u32);
        Some(JavaFrame::Known(self.object(method)?, position))
    }

    /// The place of a compiled frame in its code. The pc of a frame that is being deoptimized lies in the frame; its
    /// return address belongs to a handler.
    fn code_place(&self, piece: &Piece, cursor: &Cursor) -> Option<i32> {
        let agent = self.agent();
        let mut pc = cursor.pc;
        let handlers = [agent.deoptimized, agent.deoptimized_handle];
        if handlers.iter().any(|place| self.place(piece.blob, *place) == Some(pc)) {
            let offset = u64::try_from(self.number(piece.blob, agent.original_pc)?).ok()?;
            if offset > 0 {
                pc = (self.stack)(cursor.rsp.checked_add(offset)?)?;
            }
        }
        let code = self.place(piece.blob, agent.code)?;
        i32::try_from(pc.checked_sub(code)?).ok()
    }

    /// Where the function that calls at a return address is described. The descriptions of a method's code are in the
    /// order of their places.
    pub(super) fn scope(&self, piece: &Piece, cursor: &Cursor) -> Option<i32> {
        let agent = self.agent();
        if cursor.exact || agent.has_scopes == 0 || agent.description_bytes == 0 {
            return None;
        }
        let place = self.code_place(piece, cursor)?;
        let start = self.place(piece.blob, agent.descriptions)?;
        let bytes = self.place(piece.blob, agent.descriptions_end)?.checked_sub(start)?;
        let each = u64::from(agent.description_bytes);
        let (mut low, mut high) = (0, (bytes / each).min(DESCRIPTIONS_MAX));
        while low < high {
            let middle = low + (high - low) / 2;
            let description = start.checked_add(middle * each)?;
            match self.number(description, agent.description_pc)?.cmp(&place) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let scope = self.number(description, agent.description_scope)?;
                    return Some(scope).filter(|scope| *scope > 0);
                }
            }
        }
        None
    }

    /// The functions of a scope: the innermost one, then those around it.
    fn inlined(&self, piece: &Piece, scope: i32) -> Option<Vec<JavaFrame>> {
        let agent = self.agent();
        let scopes = self.place(piece.blob, agent.scopes)?;
        let metadata = self.place(piece.blob, agent.metadata)?;
        let (mut scope, mut functions) = (u64::try_from(scope).ok()?, Vec::new());
        while scope != 0 && functions.len() < INLINED_MAX {
            let mut address = scopes.checked_add(scope)?;
            let outer = u64::from(self.compressed(&mut address)?);
            let index = u64::from(self.compressed(&mut address)?).checked_sub(1)?;
            let bytecode = self.compressed(&mut address)?;
            if outer >= scope {
                return None;
            }
            let method = word(self.memory, metadata.checked_add(index * 8)?)?;
            // The numbers of bytecodes begin with -1: the function is being entered.
            functions.push(JavaFrame::Known(self.object(method)?, bytecode.saturating_sub(1)));
            scope = outer;
        }
        Some(functions)
    }

    /// A compressed number of at most five bytes, HotSpot's UNSIGNED5; moves the address after it.
    fn compressed(&self, address: &mut u64) -> Option<u32> {
        let bytes = array::<8>(self.memory, *address)?;
        let (excess, mut sum) = (self.agent().unsigned5_excess, 0_u32);
        for (index, byte) in (0..5).zip(bytes) {
            let digit = u32::from(byte).checked_sub(excess)?;
            sum = sum.wrapping_add(digit.wrapping_shl(index * 6));
            if byte < 192 || index == 4 {
                *address = address.checked_add(u64::from(index) + 1)?;
                return Some(sum);
            }
        }
        None
    }
}
