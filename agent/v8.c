/* JavaScript's frames. V8's code keeps the chain of rbp, and what it runs below it:
 *
 *     rbp + 8     return address
 *     rbp         the caller's rbp
 *     rbp - 8     the context; in frames of other kinds a marker, which is no tagged pointer
 *     rbp - 16    the function: JSFunction -> SharedFunctionInfo -> Script
 *     rbp - 32    the interpreter and baseline code: the bytecode
 *     rbp - 40    the interpreter: the offset in it, a small integer
 *
 * Nothing is believed because of its place: each object must say that it has the type that belongs there. An object
 * that is being moved says so by its first word, which is then no map, and its frame has no name. */
#include "v8.h"

/* Objects are aligned to words, and their addresses have 01 in the lower bits. */
#define NP_V8_TAG 1UL
#define NP_V8_TAG_MASK 3UL

static const struct np_v8 *find_v8(const struct np_control *control, const struct np_runtimes *runtimes)
{
	u64 offset = runtimes->v8_offset, limit = control->arena_bytes;
	if (!offset || offset % 8 || offset > limit || limit - offset < sizeof(struct np_v8))
		return 0;
	return (const struct np_v8 *)((u64)control + offset);
}

/* A field of an object. Fields do not cross words. */
static int field(struct np_context *context, u64 object, i32 offset, u64 *value)
{
	u64 address = object + (u64)(i64)offset, word;
	if (!np_heap_word(context, address & ~7UL, &word))
		return 0;
	*value = word >> address % 8 * 8;
	return 1;
}

static int field32(struct np_context *context, u64 object, i32 offset, u32 *value)
{
	u64 word;
	if (!field(context, object, offset, &word))
		return 0;
	*value = (u32)word;
	return 1;
}

static int is_object(u64 value)
{
	return (value & NP_V8_TAG_MASK) == NP_V8_TAG;
}

/* The type of an object; 0: it is none, or is being moved. */
static u32 type_of(struct np_context *context, const struct np_v8 *v8, u64 object)
{
	u64 word;
	if (!is_object(object) || !field(context, object, -(i32)NP_V8_TAG, &word) || !is_object(word) ||
	    !field(context, word, v8->map_type, &word))
		return 0;
	return word & 0xffff;
}

/* A small integer lies in the upper half of a word. */
static int is_small(u64 value)
{
	return !(value & 0xffffffff);
}

static u64 key_of(u64 heap, u32 script, u32 number, u64 tier)
{
	const u64 factor = 0x9e3779b97f4a7c15UL;
	u64 mixed = heap * factor + ((u64)script << 32 | number);
	mixed = (mixed << 23 | mixed >> 41) * factor + tier;
	return (mixed ^ mixed >> 29) * factor | 1;
}

/* The numbers that identify a function, wherever it lies. */
static int identify(struct np_context *context, const struct np_v8 *v8, u64 shared, u64 tier, u64 *key)
{
	u64 heap, script, number;
	u32 own;
	if (!np_heap_word(context, (shared & ~v8->page_mask) + v8->page_heap, &heap) ||
	    !field(context, shared, v8->shared_script, &script) || type_of(context, v8, script) != v8->script_type ||
	    !field(context, script, v8->script_number, &number) || !is_small(number) ||
	    !field32(context, shared, v8->shared_number, &own))
		return 0;
	*key = key_of(heap, number >> 32, own, tier);
	return 1;
}

/* The entry of a function; NP_OBJECT_NONE: there is no room. */
static u32 note(struct np_context *context, const struct np_v8 *v8, u64 key, u64 address)
{
	struct np_control *control = np_control_block(context);
	u64 offset = v8->objects_offset, limit = control->arena_bytes;
	const u64 bytes = sizeof(struct np_v8_objects) + NP_V8_OBJECTS * sizeof(struct np_v8_object);
	if (!offset || offset % 8 || offset > limit || limit - offset < bytes)
		return NP_OBJECT_NONE;
	struct np_v8_objects *table = (struct np_v8_objects *)((u64)control + offset);
	struct np_v8_object *objects = (struct np_v8_object *)(table + 1);
	for (u32 probe = 0; probe < NP_RUNTIME_PROBES; probe++) {
		u32 index = ((key >> 32) + probe) % NP_V8_OBJECTS;
		u64 found = np_load_once(objects[index].key);
		if (!found && __atomic_compare_exchange_n(&objects[index].key, &found, key, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			found = key;
		if (found != key)
			continue;
		if (np_unlikely(np_load_once(objects[index].address) != address)) {
			__atomic_store_n(&objects[index].address, address, __ATOMIC_RELEASE);
			__atomic_fetch_add(&table->changes, 1, __ATOMIC_RELEASE);
		}
		return NP_V8_FIRST_OBJECT + index;
	}
	__atomic_fetch_add(&table->refused, 1, __ATOMIC_RELAXED);
	return NP_OBJECT_NONE;
}

/* Whether a code object contains an address; yields its kind and the offset of the address. */
static int contains(struct np_context *context, const struct np_v8 *v8, u64 code, u64 pc, u32 *kind, u64 *offset)
{
	u64 start;
	u32 size;
	if (type_of(context, v8, code) != v8->code_type || !field(context, code, v8->code_start, &start))
		return 0;
	*offset = pc - start;
	if (!field32(context, code, v8->code_size, &size) || *offset > size || *offset >= NP_POSITION_NONE - NP_V8_BASELINE ||
	    !field32(context, code, v8->code_flags, kind))
		return 0;
	*kind &= v8->code_kind_mask;
	return 1;
}

/* Where in its function a frame stands. */
static u32 position(struct np_context *context, const struct np_v8 *v8, u64 function, u64 data, u64 fp, u64 pc,
                    int is_made)
{
	u64 code, offset, bytecode;
	u32 kind;
	if (field(context, function, v8->function_code, &code) && contains(context, v8, code, pc, &kind, &offset)) {
		if (kind == v8->code_baseline)
			return NP_V8_BASELINE | offset;
		if (kind > v8->code_baseline)
			return NP_POSITION_NONE;
	}
	/* The function may have got optimised code, while this call still runs the older one. */
	if (contains(context, v8, data, pc, &kind, &offset))
		return kind == v8->code_baseline ? NP_V8_BASELINE | offset : NP_POSITION_NONE;
	/* A loop's optimised code continues in the interpreter's frame. The frame's offset is then the offset of the loop's
	 * start. */
	if (is_made || !np_stack_word(context, fp + (u64)(i64)v8->frame_bytecode, &bytecode) ||
	    !np_stack_word(context, fp + (u64)(i64)v8->frame_offset, &offset) || !is_small(offset) ||
	    type_of(context, v8, bytecode) != v8->bytecode_type)
		return NP_POSITION_NONE;
	offset = (offset >> 32) - (u64)(i64)v8->bytecode_start;
	return offset < NP_V8_BASELINE ? offset : NP_POSITION_NONE;
}

u64 np_v8_frame(struct np_context *context, const struct np_runtimes *runtimes, u64 fp, u64 pc, int is_made)
{
	const struct np_v8 *v8 = find_v8(np_control_block(context), runtimes);
	u64 function, around, shared, data, key;
	if (!v8 || !np_stack_word(context, fp + (u64)(i64)v8->frame_context, &around) || !is_object(around) ||
	    !np_stack_word(context, fp + (u64)(i64)v8->frame_function, &function) || !is_object(function))
		return 0;
	u32 context_type = type_of(context, v8, around);
	u32 function_type = type_of(context, v8, function);
	if (context_type < v8->context_first || context_type > v8->context_last || function_type < v8->function_first ||
	    function_type > v8->function_last || !field(context, function, v8->function_shared, &shared) ||
	    type_of(context, v8, shared) != v8->shared_type || !field(context, shared, v8->shared_data, &data))
		return 0;
	/* A function that V8 itself brings: the native frame has its name. */
	if (is_small(data))
		return 0;
	u32 place = position(context, v8, function, data, fp, pc, is_made), object = NP_OBJECT_NONE;
	u64 tier = place != NP_POSITION_NONE && place & NP_V8_BASELINE;
	if (identify(context, v8, shared, tier, &key))
		object = note(context, v8, key, shared);
	if (object == NP_OBJECT_NONE)
		return NP_FRAME_INTERPRETED | (u64)NP_RUNTIME_JAVASCRIPT << 30 | NP_OBJECT_NONE;
	return NP_FRAME_INTERPRETED | (u64)place << 30 | object;
}
