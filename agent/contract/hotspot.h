/* HotSpot's frames: where its code lies, and where its structures keep what names a frame. */
#ifndef NANOPROBE_CONTRACT_HOTSPOT_H
#define NANOPROBE_CONTRACT_HOTSPOT_H

#define NP_HOTSPOT_HEAPS 4

/* The position of a frame of compiled code which has no description of its pc: only the outermost function is known. */
#define NP_POSITION_INLINED 0xfffffffeu

/* A place of a code blob is written as two offsets in the blob. At the first offset lies an address (0: the blob's own
 * address is used). At the second lies a number of 32 bits, which is added to the address (0: nothing is added). */
struct np_hotspot {
	u64 ready;              /* 1: the rest is known; the tracer stores it last */
	/* the parts of the code cache; 0: there are no more */
	u64 heap_low[NP_HOTSPOT_HEAPS];
	u64 heap_high[NP_HOTSPOT_HEAPS];
	u64 heap_map[NP_HOTSPOT_HEAPS]; /* a byte for each segment: 0 begins a block, 255 is free, others lead back */
	u64 interpreter_low, interpreter_high;
	u32 segment_bits;       /* the logarithm of a segment's size */
	u32 block_bytes;        /* the head of a block, before its blob */
	u32 block_used;         /* offset in that head of a byte that is 1 */
	u32 unsigned5_excess;   /* what is added to each byte of a compressed number */
	/* offsets in a blob */
	u32 blob_name, blob_bytes, frame_words, frame_complete;
	u32 frame_complete_bytes;
	u32 original_pc;        /* the offset in the frame of the pc that a deoptimization has replaced */
	u32 method;
	u32 code[2], deoptimized[2], deoptimized_handle[2];
	u32 descriptions[2], descriptions_end[2], scopes[2], metadata[2];
	u32 has_scopes;         /* 1: the places of the last line are known */
	/* offsets in a description of a pc */
	u32 description_bytes, description_pc, description_scope;
	/* offsets in a method, in its constant part, in its class's constants */
	u32 const_method;
	u32 constants, code_bytes, name_index, const_method_bytes;
	u32 holder, reserved;
};

#endif
