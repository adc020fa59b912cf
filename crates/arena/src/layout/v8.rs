//! How V8's frames and objects are made: `agent/contract/v8.h`.

use crate::structure::structure;

/// The number of [`V8Object`]s after [`V8Objects`].
pub const V8_OBJECTS: u64 = 32768;
/// The number of the first one's object in frames. Lower numbers are those of code objects of other languages.
pub const V8_FIRST_OBJECT: u32 = 0x2_0000;
/// This bit of a position: it is an offset in baseline code.
pub const V8_BASELINE: u32 = 1 << 31;

structure! {
    /// A function that was seen.
    V8Object = "np_v8_object" {
        /// Identifies the function; 0: the entry is free.
        key: u64,
        /// The last known address of its `SharedFunctionInfo`.
        address: u64,
    }
}
structure! {
    /// The head of the table of functions; [`V8_OBJECTS`] entries follow.
    V8Objects = "np_v8_objects" {
        /// Keys and addresses that were written.
        changes: u64,
        /// Frames whose function found no entry.
        refused: u64,
    }
}
structure! {
    /// Types, and offsets from tagged addresses.
    V8 = "np_v8" {
        /// Offset of the [`V8Objects`] in the arena.
        objects_offset: u64,
        /// The bits of an address in its page.
        page_mask: u64,
        /// In a page's head: which heap it belongs to.
        page_heap: u32,
        map_type: i32,
        context_first: u32,
        context_last: u32,
        function_first: u32,
        function_last: u32,
        shared_type: u32,
        script_type: u32,
        bytecode_type: u32,
        code_type: u32,
        frame_context: i32,
        frame_function: i32,
        frame_bytecode: i32,
        frame_offset: i32,
        function_shared: i32,
        function_code: i32,
        shared_data: i32,
        shared_script: i32,
        shared_number: i32,
        script_number: i32,
        code_start: i32,
        code_size: i32,
        code_flags: i32,
        code_kind_mask: u32,
        code_baseline: u32,
        bytecode_start: i32,
    }
}
