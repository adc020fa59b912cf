/* Stacks of interpreted programs: the tracer's data about a language's runtime, and the agent's data for the tracer. */
#ifndef NANOPROBE_CONTRACT_RUNTIMES_H
#define NANOPROBE_CONTRACT_RUNTIMES_H

/* A frame in a list of frames is an address, or, if bits 63 and 62 are as in no address, a frame of interpreted code:
 *
 *     63..62  10
 *     61..30  the position in the code, as its kind counts: NP_POSITION_NONE: not known
 *     29..0   the index of its code object in struct np_runtime_objects; NP_OBJECT_NONE: not known, and the
 *             position is the kind, enum np_runtime_kind
 *
 * A code object may be freed, and its memory used for another one. So its word in the table also holds a check of what
 * the object contains. The tracer reads the object soon after, and names it only if the check still fits:
 *
 *     63..20  the object's address / 8
 *     19..3   the check
 *     2..0    enum np_runtime_kind
 */
#define NP_FRAME_INTERPRETED (2UL << 62)
#define NP_POSITION_NONE 0xffffffffu
#define NP_OBJECT_NONE 0x3fffffffu

enum np_runtime_kind {
	NP_RUNTIME_PYTHON = 1,
	NP_RUNTIME_JAVASCRIPT = 2,      /* of V8's, of frames without an object only */
	NP_RUNTIME_JAVA = 4,            /* a Method of HotSpot's; the position is that of a bytecode */
	NP_RUNTIME_JAVA_STUB = 5,       /* a code blob of HotSpot's which is no method */
	/* of frames without an object only */
	NP_RUNTIME_JAVA_INTERPRETER = 16,
	NP_RUNTIME_JAVA_CODE = 17
};

#define NP_RUNTIME_OBJECTS 65536u
#define NP_RUNTIME_PROBES 16u

/* Code objects that were seen, by open addressing. A word is claimed once, and never changes again. */
struct np_runtime_objects {
	u64 noted;              /* words claimed; atomic */
	u64 refused;            /* number of frames whose object found no word; atomic */
	u64 unknown;            /* number of frames without an object, of a kind from NP_RUNTIME_JAVA_INTERPRETER on; atomic */
	/* u64 words[NP_RUNTIME_OBJECTS]; 0: free */
};

/* How CPython's frames hang together.
 *
 *     OBJECTS  up to 3.10   each call of the evaluation function runs one frame
 *     RECORDS  3.11         it runs frames up to a marked one; its _PyCFrame lies on the C stack of the call
 *     SHIMS    from 3.12    it runs frames up to one that lies on the C stack of the call */
enum np_python_form { NP_PYTHON_NONE = 0, NP_PYTHON_OBJECTS = 1, NP_PYTHON_RECORDS = 2, NP_PYTHON_SHIMS = 3 };
#define NP_PYTHON_SHIM_OWNER 3u

struct np_python {
	u64 code_start[4];      /* the ranges of the evaluation function */
	u64 code_end[4];
	u64 interpreters;       /* address of the word with the first interpreter's address */
	/* address of the word with the address of the thread that runs Python code; 0: there is no such word */
	u64 current;
	u32 form;               /* enum np_python_form */
	u32 has_record;         /* 1: the thread knows its frame by a _PyCFrame */
	/* offsets: in an interpreter, in a thread, in a _PyCFrame, in a frame, in a code object */
	u32 interpreter_next, interpreter_threads;
	u32 thread_next, thread_key, thread_frame;
	u32 record_frame, record_previous;
	u32 frame_previous, frame_code, frame_instruction;
	u32 frame_end;          /* RECORDS: a byte that is 1 in the entry frame; SHIMS: the byte of the owner */
	u32 instruction_unit;   /* OBJECTS: number of bytes in one unit of the instruction's index */
	u32 code_filename, code_name, code_line, code_table, code_instructions;
	u32 reserved;
};

struct np_runtimes {
	u64 objects_offset;     /* in the arena: struct np_runtime_objects */
	u64 hotspot_offset;     /* in the arena: struct np_hotspot; 0: there is no HotSpot */
	u64 v8_offset;          /* in the arena: struct np_v8; 0: there is no V8 */
	/* struct np_python python; its form is NP_PYTHON_NONE where there is no CPython */
};

#endif
