//! HotSpot's frames: `agent/contract/hotspot.h`.

use crate::structure::structure;

/// The parts of a code cache, at most.
pub const HOTSPOT_HEAPS: usize = 4;
/// Only the outermost function of a frame of compiled code is known.
pub const POSITION_INLINED: u32 = 0xffff_fffe;
/// This bit of a position in a method: it is that of the next place which HotSpot describes. Only samples have it.
pub const POSITION_NEAR: u32 = 1 << 31;

structure! {
    /// Where HotSpot's code lies, and offsets in its structures.
    HotSpot = "np_hotspot" {
        /// 1: the rest is known.
        ready: u64,
        /// The parts of the code cache.
        heap_low: [u64; HOTSPOT_HEAPS],
        heap_high: [u64; HOTSPOT_HEAPS],
        /// A byte for each segment of a part.
        heap_map: [u64; HOTSPOT_HEAPS],
        interpreter_low: u64,
        interpreter_high: u64,
        /// The logarithm of a segment's size.
        segment_bits: u32,
        block_bytes: u32,
        block_used: u32,
        /// This number is added to each byte of a compressed number.
        unsigned5_excess: u32,
        blob_name: u32,
        blob_bytes: u32,
        frame_words: u32,
        frame_complete: u32,
        frame_complete_bytes: u32,
        original_pc: u32,
        method: u32,
        code: [u32; 2],
        deoptimized: [u32; 2],
        deoptimized_handle: [u32; 2],
        descriptions: [u32; 2],
        descriptions_end: [u32; 2],
        scopes: [u32; 2],
        metadata: [u32; 2],
        /// 1: `descriptions`, `descriptions_end`, `scopes` and `metadata` are known.
        has_scopes: u32,
        description_bytes: u32,
        description_pc: u32,
        description_scope: u32,
        const_method: u32,
        constants: u32,
        code_bytes: u32,
        name_index: u32,
        const_method_bytes: u32,
        holder: u32,
        reserved: u32,
    }
}
