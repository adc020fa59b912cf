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
 *     NP_POSITION_INLINED       not known: optimised code, which may contain further functions
 *     NP_POSITION_NONE          not known */
#define NP_V8_OBJECTS 32768u
#define NP_V8_FIRST_OBJECT 0x20000u
#define NP_V8_BASELINE 0x80000000u

/* Optimised code contains other functions. For each of its calls, V8 has a list of the frames that the call stands for,
 * outermost first, in a language of its own: operations, each with some numbers of 7 bits a byte.
 *
 *     BEGIN             how far back the list is to which MATCH refers, the number of frames, and of JavaScript's
 *     INTERPRETED       a function of JavaScript: the offset in its bytecode, the index of the function's literal, ...
 *     other frames      stubs and builtins between functions
 *     MATCH             the next operations are those of the other list at the same place
 *     the others        values that a frame has: not needed */
enum np_v8_operation {
	NP_V8_BEGIN_FIRST = 2,
	NP_V8_BEGIN_LAST = 3,
	NP_V8_BUILTIN_FRAME = 6,
	NP_V8_CONSTRUCT_FRAME = 8,
	NP_V8_EXTRA_FRAME = 14,
	NP_V8_INTERPRETED_FIRST = 23,
	NP_V8_INTERPRETED_LAST = 24,
	NP_V8_FRAME_LAST = 27,  /* from NP_V8_INTERPRETED_FIRST on, all are frames */
	NP_V8_MATCH = 35,
	NP_V8_OPERATIONS = 36   /* greater ones: NP_V8_MATCH, for as many operations as are beyond */
};
/* How many numbers an operation has, a digit of 4 bits each, from the lowest on. */
#define NP_V8_OPERANDS_0 0x1211111313113301u
#define NP_V8_OPERANDS_1 0x1110433351111111u
#define NP_V8_OPERANDS_2 0x1211u
/* No list of frames is read further than this many bytes. */
#define NP_V8_LIST_BYTES_MAX 8192u
/* How far before an address its code may begin. */
#define NP_V8_CODE_BYTES_MAX 65536u
#define NP_V8_CODE_ALIGNMENT 64u

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
	u32 code_kind_mask, code_baseline, code_optimized;
	i32 bytecode_start;
	/* arrays: their types, where their length is, and their first element */
	u32 array_type, literals_type, bytes_type;
	i32 array_length, array_start;
	i32 code_exits;         /* an array: what is known of the code's calls */
	/* elements of that array */
	u32 exit_lists, exit_literals, exit_function, exit_start, exit_eager, exit_lazy, exit_first;
};

#endif
