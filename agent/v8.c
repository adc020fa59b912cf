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

static const struct np_v8 *find_v8(const struct np_control *control, const struct np_runtimes *runtimes)
{
	u64 offset = runtimes->v8_offset, limit = control->arena_bytes;
	if (!offset || offset % 8 || offset > limit || limit - offset < sizeof(struct np_v8))
		return 0;
	return (const struct np_v8 *)((u64)control + offset);
}

int np_v8_field(struct np_context *context, u64 object, i32 offset, u64 *value)
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
	if (!np_v8_field(context, object, offset, &word))
		return 0;
	*value = (u32)word;
	return 1;
}

u32 np_v8_type_of(struct np_context *context, const struct np_v8 *v8, u64 object)
{
	u64 map, word;
	if (!np_v8_is_object(object) || !np_heap_word(context, object - 1, &map) || !np_v8_is_object(map))
		return 0;
	map += (u64)(i64)v8->map_type;
	return np_heap_word(context, map & ~7UL, &word) ? word >> map % 8 * 8 & 0xffff : 0;
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
	    !np_v8_field(context, shared, v8->shared_script, &script) || np_v8_type_of(context, v8, script) != v8->script_type ||
	    !np_v8_field(context, script, v8->script_number, &number) || !np_v8_is_small(number) ||
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

/* Whether a code object that is no bytecode's contains the address. Then it is the code that the frame runs. */
static int contains(struct np_context *context, struct np_v8_walk *walk, u64 code)
{
	const struct np_v8 *v8 = walk->v8;
	u64 start;
	u32 size, kind;
	if (np_v8_type_of(context, v8, code) != v8->code_type || !np_v8_field(context, code, v8->code_start, &start) ||
	    !field32(context, code, v8->code_size, &size) || walk->pc - start > size ||
	    walk->pc - start >= NP_POSITION_INLINED - NP_V8_BASELINE || !field32(context, code, v8->code_flags, &kind))
		return 0;
	walk->code = code;
	walk->kind = kind & v8->code_kind_mask;
	walk->place = walk->pc - start;
	return walk->kind >= v8->code_baseline;
}

/* Finds the code that a frame runs: the function's, or an older one that this call still runs. */
static void find_code(struct np_context *context, struct np_v8_walk *walk, u64 function, u64 data)
{
	u64 code;
	if ((np_v8_field(context, function, walk->v8->function_code, &code) && contains(context, walk, code)) ||
	    contains(context, walk, data) ||
	    (walk->is_made && contains(context, walk, np_v8_find_code(context, walk))))
		return;
	walk->code = 0;
	walk->kind = 0;
}

/* Where in its function a frame stands. */
static u32 position(struct np_context *context, const struct np_v8_walk *walk)
{
	const struct np_v8 *v8 = walk->v8;
	u64 bytecode, offset;
	if (walk->kind == v8->code_baseline)
		return NP_V8_BASELINE | walk->place;
	/* A loop's optimised code continues in the interpreter's frame. The frame's offset is then the offset of the loop's
	 * start. */
	if (walk->kind || walk->is_made)
		return NP_POSITION_INLINED;
	if (!np_stack_word(context, walk->fp + (u64)(i64)v8->frame_bytecode, &bytecode) ||
	    !np_stack_word(context, walk->fp + (u64)(i64)v8->frame_offset, &offset) || !np_v8_is_small(offset) ||
	    np_v8_type_of(context, v8, bytecode) != v8->bytecode_type)
		return NP_POSITION_NONE;
	offset = (offset >> 32) - (u64)(i64)v8->bytecode_start;
	return offset < NP_V8_BASELINE ? offset : NP_POSITION_NONE;
}

u64 np_v8_frame(struct np_context *context, const struct np_v8 *v8, u64 shared, u32 position)
{
	u64 key, tier = position < NP_POSITION_INLINED && position & NP_V8_BASELINE;
	u32 object = NP_OBJECT_NONE;
	if (identify(context, v8, shared, tier, &key))
		object = note(context, v8, key, shared);
	if (object == NP_OBJECT_NONE)
		return NP_FRAME_INTERPRETED | (u64)NP_RUNTIME_JAVASCRIPT << 30 | NP_OBJECT_NONE;
	return NP_FRAME_INTERPRETED | (u64)position << 30 | object;
}

int np_v8_find_frame(struct np_context *context, const struct np_runtimes *runtimes, struct np_v8_walk *walk)
{
	const struct np_v8 *v8 = walk->v8 = find_v8(np_control_block(context), runtimes);
	u64 function, around, data;
	if (!v8 || !np_stack_word(context, walk->fp + (u64)(i64)v8->frame_context, &around) || !np_v8_is_object(around) ||
	    !np_stack_word(context, walk->fp + (u64)(i64)v8->frame_function, &function) || !np_v8_is_object(function))
		return 0;
	u32 context_type = np_v8_type_of(context, v8, around);
	u32 function_type = np_v8_type_of(context, v8, function);
	if (context_type < v8->context_first || context_type > v8->context_last || function_type < v8->function_first ||
	    function_type > v8->function_last ||
	    !np_v8_field(context, function, v8->function_shared, &walk->shared) ||
	    np_v8_type_of(context, v8, walk->shared) != v8->shared_type ||
	    !np_v8_field(context, walk->shared, v8->shared_data, &data))
		return 0;
	/* A function that V8 itself brings: the native frame has its name. */
	if (np_v8_is_small(data))
		return 0;
	find_code(context, walk, function, data);
	return 1;
}

void np_v8_add_frame(struct np_context *context, struct np_v8_walk *walk)
{
	walk->count = walk->at + 1;
	((volatile u64 *)walk->frames)[walk->at] =
	    np_v8_frame(context, walk->v8, walk->shared, position(context, walk));
}
