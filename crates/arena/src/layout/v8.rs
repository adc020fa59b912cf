//! How V8's frames and objects are made: `agent/contract/v8.h`.

use crate::structure::structure;

/// The number of [`V8Object`]s after [`V8Objects`].
pub const V8_OBJECTS: u64 = 32768;
/// The number of the first one's object in frames. Lower numbers are those of code objects of other languages.
pub const V8_FIRST_OBJECT: u32 = 0x2_0000;
/// This bit of a position: it is an offset in baseline code.
pub const V8_BASELINE: u32 = 1 << 31;

/// Operations of V8's lists of frames: `enum np_v8_operation`.
pub const V8_BEGIN_FIRST: u8 = 2;
/// See above.
pub const V8_BEGIN_LAST: u8 = 3;
/// See above.
pub const V8_BUILTIN_FRAME: u8 = 6;
/// See above.
pub const V8_CONSTRUCT_FRAME: u8 = 8;
/// See above.
pub const V8_EXTRA_FRAME: u8 = 14;
/// See above.
pub const V8_INTERPRETED_FIRST: u8 = 23;
/// See above.
pub const V8_INTERPRETED_LAST: u8 = 24;
/// See above.
pub const V8_FRAME_LAST: u8 = 27;
/// See above.
pub const V8_MATCH: u8 = 35;
/// See above.
pub const V8_OPERATIONS: u8 = 36;
/// How many numbers each operation has: a digit of 4 bits, from the lowest on.
pub const V8_OPERANDS: [u64; 3] = [0x1211_1113_1311_3301, 0x1110_4333_5111_1111, 0x1211];
/// No list of frames is read further than this many bytes.
pub const V8_LIST_BYTES_MAX: u32 = 8192;
/// How far before an address its code may begin.
pub const V8_CODE_BYTES_MAX: u64 = 65536;
/// Code begins at a multiple of this.
pub const V8_CODE_ALIGNMENT: u64 = 64;

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
        code_optimized: u32,
        bytecode_start: i32,
        array_type: u32,
        literals_type: u32,
        bytes_type: u32,
        array_length: i32,
        array_start: i32,
        /// In a code object: what is known of its calls.
        code_exits: i32,
        /// Elements of that.
        exit_lists: u32,
        exit_literals: u32,
        exit_function: u32,
        exit_start: u32,
        exit_eager: u32,
        exit_lazy: u32,
        exit_first: u32,
    }
}
