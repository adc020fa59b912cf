/* How V8's frames and objects are made: what the agent must know to see which function a frame of JavaScript runs. */
#ifndef NANOPROBE_CONTRACT_V8_H
#define NANOPROBE_CONTRACT_V8_H

/* V8's collector moves objects, so an address is no identity. A function is known by numbers that never change: its
 * heap, the number of its script, and its own number in the script. A mix of these numbers, and of whether baseline
 * code of the function was seen, is its key (`key_of` in v8.c). An entry holds the address that the function's
 * SharedFunctionInfo had at the last hit. The tracer reads that memory soon after, and uses the result only if it has
 * the same key.
 *
 * A frame's object is NP_V8_FIRST_OBJECT + the index of its entry. Its position is
 *
 *     0..0x7ffffffe             the offset in the bytecode
 *     0x80000000 + 0..          an offset in baseline code
 *     NP_POSITION_NONE          not known: optimised code */
#define NP_V8_OBJECTS 32768u
#define NP_V8_FIRST_OBJECT 0x20000u
#define NP_V8_BASELINE 0x80000000u

struct np_v8_object {
	u64 key;                /* claimed once, and never changed; 0: free */
	u64 address;            /* the last known address; 0: not yet written */
};

struct np_v8_objects {
	u64 changes;            /* keys and addresses written; atomic */
	u64 refused;            /* frames whose function found no entry; atomic */
	/* struct np_v8_object objects[NP_V8_OBJECTS] */
};

/* Offsets are those from an object's tagged address, which is one more than where it lies. */
struct np_v8 {
	u64 objects_offset;     /* in the arena: struct np_v8_objects */
	u64 page_mask;          /* the bits of an address in its page */
	u32 page_heap;          /* in a page's head: which heap it belongs to */
	i32 map_type;
	u32 context_first, context_last;
	u32 function_first, function_last;
	u32 shared_type, script_type, bytecode_type, code_type;
	i32 frame_context, frame_function, frame_bytecode, frame_offset;
	i32 function_shared, function_code;
	i32 shared_data, shared_script, shared_number;
	i32 script_number;
	i32 code_start, code_size, code_flags;
	u32 code_kind_mask, code_baseline;
	i32 bytecode_start;
};

#endif
