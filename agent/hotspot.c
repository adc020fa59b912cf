/* HotSpot's frames. Its code has no call frame information, and no frame pointers in compiled methods.
 *
 *     code cache -> heap -> segment map -> block -> blob: its name, where its code begins, the size of its frames
 *
 *     interpreter   frames are chained by rbp; the method and the place in its bytecodes lie at fixed places below it
 *     compiled      frames have the size that the blob says; below the return address lies the caller's rbp
 *     stubs         either; those without a size keep rbp
 *
 * A compiled method may contain others that were inlined. It has a description for each return address: the innermost
 * function with the place in its bytecodes, and the descriptions of the functions around it. So one native frame
 * becomes several. A method on the stack cannot be freed, so all this is exact at the hit. The tracer reads names
 * later.
 *
 * The target may have any bytes there: all loads are guarded, all loops have a bound, and what does not fit ends the
 * walk, or is a frame without a name. */
#include "hotspot.h"

#define NP_HOTSPOT_HOPS_MAX 16384
#define NP_HOTSPOT_DESCRIPTIONS_MAX (1UL << 20)
#define NP_HOTSPOT_FRAME_MAX (1UL << 20)
#define NP_SEGMENT_FREE 255
#define NP_MIX 0x9e3779b97f4a7c15UL

/* Below the interpreter's frame pointer, in bytes. */
enum { NP_INTERPRETED_SENDER = 8, NP_INTERPRETED_METHOD = 24, NP_INTERPRETED_BYTECODE = 64 };

/* The first bytes of names: "nmethod" with its end, and "native nmethod". */
#define NP_NAME_COMPILED 0x00646f6874656d6eUL
#define NP_NAME_WRAPPER 0x6e2065766974616eUL

enum { NP_CODE_PUSH_RBP = 0x55, NP_CODE_POP_RBP = 0x5d, NP_CODE_RET = 0xc3 };
#define NP_CODE_STACK_BANG 0x248489 /* mov [rsp + distance], eax */

const struct np_hotspot *np_find_hotspot(const struct np_control *control, const struct np_runtimes *runtimes)
{
	u64 offset = np_load_once(runtimes->hotspot_offset), limit = control->arena_bytes;
	if (!offset || offset % 8 || offset > limit || limit - offset < sizeof(struct np_hotspot))
		return 0;
	const struct np_hotspot *hotspot = (const struct np_hotspot *)((u64)control + offset);
	return np_load_once(hotspot->ready) == 1 ? hotspot : 0;
}

/* A number of `bytes` bytes, at most 8, with a sign. */
static int number(struct np_context *context, u64 address, u64 bytes, i64 *value)
{
	u64 word;
	if (!np_heap_word(context, address, &word))
		return 0;
	u64 unused = 64 - bytes * 8 % 64;
	*value = bytes == 8 ? (i64)word : (i64)(word << unused) >> unused;
	return 1;
}

/* The address that a place of a blob holds: see struct np_hotspot. */
static int place(struct np_context *context, u64 blob, const u32 *offsets, u64 *address)
{
	i64 addend = 0;
	*address = blob;
	if (offsets[0] && !np_heap_word(context, blob + offsets[0], address))
		return 0;
	if (offsets[1] && !number(context, blob + offsets[1], 4, &addend))
		return 0;
	*address += (u64)addend;
	return 1;
}

/* The block around an address: HotSpot's map leads from each segment of a block back to the block's first segment. */
static int find_block(struct np_context *context, const struct np_hotspot *hotspot, u32 heap, u64 pc, u64 *block)
{
	u64 segment = (pc - hotspot->heap_low[heap]) >> (hotspot->segment_bits & 63);
	for (u32 hops = 0; hops < NP_HOTSPOT_HOPS_MAX; hops++) {
		u64 byte = hotspot->heap_map[heap] + segment, word;
		if (!np_heap_word(context, byte & ~7UL, &word))
			return 0;
		u64 back = word >> byte % 8 * 8 & 0xff;
		if (!back) {
			*block = hotspot->heap_low[heap] + (segment << (hotspot->segment_bits & 63));
			return 1;
		}
		if (back == NP_SEGMENT_FREE || back > segment)
			return 0;
		segment -= back;
	}
	return 0;
}

static int describe(struct np_context *context, struct np_hotspot_walk *walk, u64 block, u64 pc)
{
	const struct np_hotspot *hotspot = walk->hotspot;
	struct np_hotspot_code *code = &walk->code;
	u64 blob = block + hotspot->block_bytes, text;
	i64 used, bytes, words;
	if (!number(context, block + hotspot->block_used, 1, &used) || used != 1 ||
	    !number(context, blob + hotspot->blob_bytes, 4, &bytes) || bytes <= 0 || pc - blob >= (u64)bytes ||
	    !number(context, blob + hotspot->frame_words, 4, &words) || words > (i64)(NP_HOTSPOT_FRAME_MAX / 8) ||
	    !np_heap_word(context, blob + hotspot->blob_name, &code->object) ||
	    !np_heap_word(context, code->object, &text))
		return 0;
	code->blob = blob;
	code->frame_bytes = words > 0 ? (u64)words * 8 : 0;
	code->kind = text == NP_NAME_COMPILED  ? NP_HOTSPOT_COMPILED
	             : text == NP_NAME_WRAPPER ? NP_HOTSPOT_WRAPPER
	                                       : NP_HOTSPOT_STUB;
	return 1;
}

int np_hotspot_find(struct np_context *context, struct np_hotspot_walk *walk)
{
	const struct np_hotspot *hotspot = walk->hotspot;
	u64 block, pc = walk->cursor.pc - !walk->cursor.exact;
	for (u32 heap = 0; heap < NP_HOTSPOT_HEAPS; heap++) {
		u64 low = hotspot->heap_low[heap];
		if (pc - low >= hotspot->heap_high[heap] - low)
			continue;
		walk->code.blob = walk->code.frame_bytes = 0;
		walk->code.kind = NP_HOTSPOT_STUB;
		if (pc - hotspot->interpreter_low < hotspot->interpreter_high - hotspot->interpreter_low)
			walk->code.kind = NP_HOTSPOT_INTERPRETED;
		else if (find_block(context, hotspot, heap, pc, &block) && !describe(context, walk, block, pc))
			walk->code.blob = 0;
		return 1;
	}
	return 0;
}

void np_hotspot_add(struct np_context *context, struct np_hotspot_walk *walk, u64 kind)
{
	const struct np_hotspot *hotspot = walk->hotspot;
	u64 object = 0, check = 0, constant, word;
	if (kind == NP_RUNTIME_JAVA_STUB) {
		object = walk->code.blob;
		check = walk->code.object;
	} else if (kind == NP_RUNTIME_JAVA &&
	           np_heap_word(context, walk->code.object + hotspot->const_method, &constant) &&
	           np_heap_word(context, constant + hotspot->constants, &word)) {
		/* The tracer checks that the method has still the same content. */
		object = walk->code.object;
		check = (constant << 23 | constant >> 41) * NP_MIX + word;
		if (!np_heap_word(context, word + hotspot->holder, &word))
			word = 0;
		check = (check << 23 | check >> 41) * NP_MIX + word;
		if (!np_heap_word(context, (constant + hotspot->name_index) & ~7UL, &word))
			word = 0;
		check = ((check << 23 | check >> 41) * NP_MIX + word) * NP_MIX >> 47;
	}
	((volatile u64 *)walk->frames)[walk->count++] =
	    np_interpreted_frame(context, walk->runtimes, kind, object, check, (u32)walk->code.position);
}

/* A frame of the interpreter. A native method has no bytecodes. */
static u64 next_interpreted(struct np_context *context, struct np_hotspot_walk *walk)
{
	const struct np_hotspot *hotspot = walk->hotspot;
	u64 bytecode, constant;
	i64 bytes;
	if (!np_stack_word(context, walk->cursor.rbp - NP_INTERPRETED_METHOD, &walk->code.object) ||
	    !np_stack_word(context, walk->cursor.rbp - NP_INTERPRETED_BYTECODE, &bytecode) ||
	    !np_heap_word(context, walk->code.object + hotspot->const_method, &constant) ||
	    !number(context, constant + hotspot->code_bytes, 2, &bytes))
		return NP_RUNTIME_JAVA_INTERPRETER;
	bytes &= 0xffff;
	u64 position = bytecode - (constant + hotspot->const_method_bytes);
	/* Where a signal has interrupted it, the place in the bytecodes is in a register. A native method has no place
	 * in bytecodes, or a place that means nothing. */
	if (walk->cursor.exact || (!bytes && (!bytecode || !position)))
		position = NP_POSITION_NONE;
	else if (position >= (u64)bytes)
		return NP_RUNTIME_JAVA_INTERPRETER;
	walk->code.position = position;
	return NP_RUNTIME_JAVA;
}

/* A compressed number of at most five bytes, HotSpot's UNSIGNED5; moves the address after it. */
static int compressed(struct np_context *context, const struct np_hotspot *hotspot, u64 *address, u64 *value)
{
	u64 word, excess = hotspot->unsigned5_excess, sum = 0;
	if (!np_heap_word(context, *address, &word))
		return 0;
	for (u32 index = 0; index < 5; index++) {
		u64 byte = word >> index * 8 & 0xff;
		if (byte < excess)
			return 0;
		sum += (byte - excess) << index * 6;
		if (byte < 192 || index == 4) {
			*address += index + 1;
			*value = sum & 0xffffffff;
			return 1;
		}
	}
	return 0;
}

/* The place of a compiled frame in its code. The pc of a frame that is being deoptimized lies in the frame; its return
 * address belongs to a handler. */
void np_hotspot_find_place(struct np_context *context, struct np_hotspot_walk *walk)
{
	const struct np_hotspot *hotspot = walk->hotspot;
	u64 blob = walk->code.blob, pc = walk->cursor.pc, address;
	i64 offset;
	if (walk->code.kind != NP_HOTSPOT_COMPILED)
		return;
	if ((place(context, blob, hotspot->deoptimized, &address) && address == pc) ||
	    (place(context, blob, hotspot->deoptimized_handle, &address) && address == pc))
		if (number(context, blob + hotspot->original_pc, 4, &offset) && offset > 0 &&
		    np_stack_word(context, walk->cursor.rsp + (u64)offset, &address))
			pc = address;
	if (place(context, blob, hotspot->code, &address))
		walk->code.position = pc - address;
	else
		walk->code.kind = NP_HOTSPOT_STUB;
}

/* The descriptions of a method's code are in the order of their places. */
void np_hotspot_find_scope(struct np_context *context, struct np_hotspot_walk *walk)
{
	const struct np_hotspot *hotspot = walk->hotspot;
	u64 start, end, low = 0;
	i64 found;
	walk->code.scope = 0;
	if (walk->code.kind != NP_HOTSPOT_COMPILED || !hotspot->has_scopes || !hotspot->description_bytes ||
	    !place(context, walk->code.blob, hotspot->descriptions, &start) ||
	    !place(context, walk->code.blob, hotspot->descriptions_end, &end) || end < start)
		return;
	u64 high = np_minimum((end - start) / hotspot->description_bytes, NP_HOTSPOT_DESCRIPTIONS_MAX);
	while (low < high) {
		u64 middle = low + (high - low) / 2, description = start + middle * hotspot->description_bytes;
		if (!number(context, description + hotspot->description_pc, 4, &found))
			return;
		if (found < (i64)walk->code.position) {
			low = middle + 1;
		} else if (found > (i64)walk->code.position) {
			high = middle;
		} else {
			if (number(context, description + hotspot->description_scope, 4, &found) && found > 0)
				walk->code.scope = found;
			return;
		}
	}
}

/* A function of a compiled frame. Where nothing describes the pc, only the outermost one is known. */
static u64 next_compiled(struct np_context *context, struct np_hotspot_walk *walk)
{
	const struct np_hotspot *hotspot = walk->hotspot;
	u64 address, index, outer, bytecode;
	i64 offset = walk->code.scope;
	walk->code.position = NP_POSITION_INLINED;
	if (!offset)
		return np_heap_word(context, walk->code.blob + hotspot->method, &walk->code.object) ? NP_RUNTIME_JAVA
		                                                                                    : NP_RUNTIME_JAVA_CODE;
	walk->code.scope = 0;
	if (!place(context, walk->code.blob, hotspot->scopes, &address))
		return NP_RUNTIME_JAVA_CODE;
	address += (u64)offset;
	if (!compressed(context, hotspot, &address, &outer) || !compressed(context, hotspot, &address, &index) ||
	    !compressed(context, hotspot, &address, &bytecode) || !index || (i64)outer >= offset ||
	    !place(context, walk->code.blob, hotspot->metadata, &address) ||
	    !np_heap_word(context, address + (index - 1) * 8, &walk->code.object))
		return NP_RUNTIME_JAVA_CODE;
	/* The numbers of bytecodes begin with -1: the function is being entered. */
	walk->code.position = bytecode ? (u32)bytecode - 1 : 0;
	walk->code.scope = (i64)outer;
	return NP_RUNTIME_JAVA;
}

u64 np_hotspot_next(struct np_context *context, struct np_hotspot_walk *walk)
{
	struct np_hotspot_code *code = &walk->code;
	code->position = NP_POSITION_NONE;
	if (code->kind == NP_HOTSPOT_COMPILED)
		return next_compiled(context, walk);
	if (code->kind == NP_HOTSPOT_INTERPRETED)
		return next_interpreted(context, walk);
	if (!code->blob)
		return NP_RUNTIME_JAVA_CODE;
	if (code->kind == NP_HOTSPOT_WRAPPER &&
	    np_heap_word(context, code->blob + walk->hotspot->method, &code->object))
		return NP_RUNTIME_JAVA;
	return NP_RUNTIME_JAVA_STUB;
}

/* Where a signal has interrupted compiled code, it may not have its frame yet, or no longer. */
static int step_interrupted(struct np_context *context, struct np_hotspot_walk *walk)
{
	const struct np_hotspot *hotspot = walk->hotspot;
	struct np_cursor *cursor = &walk->cursor;
	u64 text, code, cfa = cursor->rsp + walk->code.frame_bytes;
	i64 complete;
	if (!np_heap_word(context, cursor->pc, &text) || !place(context, walk->code.blob, hotspot->code, &code) ||
	    !number(context, walk->code.blob + hotspot->frame_complete, hotspot->frame_complete_bytes, &complete))
		return 0;
	if ((text & 0xff) == NP_CODE_RET)
		return np_step_to(context, cursor, cursor->rsp + 8, 0);
	if ((text & 0xff) == NP_CODE_POP_RBP)
		return np_step_to(context, cursor, cursor->rsp + 16, cursor->rsp);
	if (complete < 0 || (i64)(cursor->pc - code) >= complete)
		return np_step_to(context, cursor, cfa, cfa - 16);
	if ((text & 0xff) == NP_CODE_PUSH_RBP || (text & 0xffffff) == NP_CODE_STACK_BANG)
		return np_step_to(context, cursor, cursor->rsp + 8, 0);
	return 0;
}

int np_hotspot_step(struct np_context *context, struct np_hotspot_walk *walk)
{
	struct np_cursor *cursor = &walk->cursor;
	u64 sender, rbp = cursor->rbp, cfa = cursor->rsp + walk->code.frame_bytes;
	if (walk->code.blob && walk->code.frame_bytes >= 16) {
		if (cursor->exact)
			return step_interrupted(context, walk);
		return np_step_to(context, cursor, cfa, cfa - 16);
	}
	if (rbp < cursor->rsp || !np_step_to(context, cursor, rbp + 16, rbp))
		return 0;
	/* A compiled caller has the stack pointer that it had before its arguments were moved for the interpreter. */
	if (walk->code.kind == NP_HOTSPOT_INTERPRETED &&
	    np_stack_word(context, rbp - NP_INTERPRETED_SENDER, &sender) && sender % 8 == 0 && sender > cursor->rsp &&
	    sender - cursor->rsp < NP_HOTSPOT_FRAME_MAX)
		cursor->rsp = sender;
	return 1;
}
