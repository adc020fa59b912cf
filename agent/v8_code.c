/* Optimised code of V8's: which functions each of its calls stands for.
 *
 * V8 itself needs that, to go on in the interpreter when an assumption of the code no longer holds, and to tell stacks.
 *
 *     code object -> instructions, after them the safepoints: for each return address, the number of its exit
 *                 -> array of exits: for each one, where its list of frames begins
 *                 -> lists of frames (enum np_v8_operation), literals: the functions that lists refer to by numbers
 *
 * A call whose code is no longer valid has another return address: that of the jump which leaves the code. These jumps
 * follow each other in the order of the exits.
 *
 * The code is on the stack, so nothing of it can be freed. All this is exact at the hit. The target may have any bytes
 * there: each object must have its type, all loads are guarded, and all loops have a bound. */
#include "v8.h"

#define NP_V8_SAFEPOINTS_MAX (1UL << 16)
#define NP_V8_JUMP_BYTES 4

/* A number of at most so many bytes, the lowest bits first. */
static __attribute__((noinline)) u32 next(struct np_context *context, struct np_v8_walk *walk, u32 bytes)
{
	struct np_v8_list *list = &walk->list;
	u32 *at = &list->at[list->is_other], sum = 0;
	for (u32 index = 0; index < bytes; index++) {
		u64 address = list->bytes + (u64)(i64)walk->v8->array_start + *at, word;
		if (++list->read > NP_V8_LIST_BYTES_MAX || *at >= list->end ||
		    !np_heap_word(context, address & ~7UL, &word)) {
			list->read = NP_V8_LIST_BYTES_MAX;
			return 0;
		}
		*at += 1;
		u32 byte = word >> address % 8 * 8 & 0xff;
		if (bytes == 1)
			return byte;
		sum |= (byte & 0x7f) << index * 7;
		if (!(byte & 0x80))
			break;
	}
	return sum;
}

#define NP_NUMBER 5

/* Skips numbers. */
static void skip(struct np_context *context, struct np_v8_walk *walk, u32 count)
{
	for (; count; count--)
		next(context, walk, NP_NUMBER);
}

NP_INLINE i32 with_sign(u32 number)
{
	return number & 1 ? -(i32)(number >> 1) : (i32)(number >> 1);
}

static u32 operands(u32 operation)
{
	const u64 digits = operation < 16   ? NP_V8_OPERANDS_0
	                   : operation < 32 ? NP_V8_OPERANDS_1
	                                    : NP_V8_OPERANDS_2;
	return digits >> operation % 16 * 4 & 15;
}

/* Reads the next operation. */
static __attribute__((noinline)) u32 next_operation(struct np_context *context, struct np_v8_walk *walk)
{
	struct np_v8_list *list = &walk->list;
	list->is_other = list->matching && --list->matching;
	if (list->is_other)
		return next(context, walk, 1);
	u32 begin = list->at[0], operation = next(context, walk, 1);
	if (operation < NP_V8_MATCH) {
		list->behind++;
		if (operation >= NP_V8_BEGIN_FIRST && operation <= NP_V8_BEGIN_LAST) {
			list->at[1] = begin - next(context, walk, NP_NUMBER);
			list->behind = 1;
		}
		return operation;
	}
	list->matching = operation > NP_V8_MATCH ? operation - NP_V8_OPERATIONS : next(context, walk, NP_NUMBER);
	list->is_other = 1;
	for (; list->behind && list->read < NP_V8_LIST_BYTES_MAX; list->behind--)
		skip(context, walk, operands(next(context, walk, 1)));
	return next(context, walk, 1);
}

/* Adds a frame after those that are within it. The outermost ones have no room. */
static void add(struct np_v8_walk *walk, u64 frame)
{
	volatile u64 *frames = (volatile u64 *)walk->frames;
	if (walk->count == walk->limit) {
		for (u64 index = walk->at + 1; index < walk->limit; index++)
			frames[index - 1] = frames[index];
		walk->count--;
	}
	frames[walk->count++] = frame;
}

/* An element of an array of this type, if it has so many. */
static __attribute__((noinline)) int element(struct np_context *context, const struct np_v8 *v8, u32 type, u64 array,
                                             u32 index, u64 *value)
{
	return np_v8_type_of(context, v8, array) == type && np_v8_field(context, array, v8->array_length, value) &&
	       np_v8_is_small(*value) && index < *value >> 32 &&
	       np_v8_field(context, array + index * 8UL, v8->array_start, value);
}

/* Reads the frame of a function; yields whether it makes sense. */
static __attribute__((noinline)) int add_function(struct np_context *context, struct np_v8_walk *walk)
{
	const struct np_v8 *v8 = walk->v8;
	i32 position = with_sign(next(context, walk, NP_NUMBER));
	i32 literal = with_sign(next(context, walk, NP_NUMBER));
	u64 shared;
	if (literal < 0 || !element(context, v8, v8->literals_type, walk->list.literals, (u32)literal, &shared) ||
	    np_v8_type_of(context, v8, shared) != v8->shared_type)
		return 0;
	/* The first one is the function whose code it is. */
	if (walk->count == walk->at && shared != walk->shared)
		return 0;
	/* -1: the function is being entered. */
	add(walk, np_v8_frame(context, v8, shared, position < 0 ? 0 : (u32)position));
	return 1;
}

/* A list has the outermost function first. */
static void reverse(const struct np_v8_walk *walk)
{
	volatile u64 *frames = (volatile u64 *)walk->frames;
	for (u64 low = walk->at, high = walk->count - 1; low < high; low++, high--) {
		u64 frame = frames[low];
		frames[low] = frames[high];
		frames[high] = frame;
	}
}

int np_v8_add_list(struct np_context *context, struct np_v8_walk *walk)
{
	struct np_v8_list *list = &walk->list;
	u32 operation = next_operation(context, walk);
	if (operation < NP_V8_BEGIN_FIRST || operation > NP_V8_BEGIN_LAST)
		return 0;
	i32 frames = with_sign(next(context, walk, NP_NUMBER));
	next(context, walk, NP_NUMBER);
	walk->count = walk->at;
	while (frames > 0) {
		operation = next_operation(context, walk);
		u32 left = operands(operation);
		if (operation >= NP_V8_INTERPRETED_FIRST && operation <= NP_V8_INTERPRETED_LAST) {
			if (!add_function(context, walk))
				return 0;
			left -= 2;
		}
		frames -= operation == NP_V8_BUILTIN_FRAME || operation == NP_V8_CONSTRUCT_FRAME ||
		          operation == NP_V8_EXTRA_FRAME ||
		          (operation >= NP_V8_INTERPRETED_FIRST && operation <= NP_V8_FRAME_LAST);
		skip(context, walk, left);
		if (list->read >= NP_V8_LIST_BYTES_MAX)
			return 0;
	}
	if (walk->count == walk->at)
		return 0;
	reverse(walk);
	return 1;
}

/* The number of the exit of a call, by the safepoints, which are in the order of their places: its place, the number
 * of its exit + 1, and more. Each is as long as the head says. */
static __attribute__((noinline)) int find_safepoint(struct np_context *context, struct np_v8_walk *walk, u64 table)
{
	u64 head, word, low = 0;
	if (!np_heap_word(context, table, &head))
		return 0;
	u64 place_bytes = head >> 36 & 7, exit_bytes = head >> 39 & 7, each = 2 * place_bytes + exit_bytes + (head >> 33 & 7);
	if (!(head >> 32 & 1) || !place_bytes || place_bytes > 4 || !exit_bytes || exit_bytes > 4)
		return 0;
	u64 high = np_minimum(head & 0xffffffff, NP_V8_SAFEPOINTS_MAX);
	while (low < high) {
		u64 middle = low + (high - low) / 2;
		if (!np_heap_word(context, table + 8 + middle * each, &word))
			return 0;
		u64 found = word & ((1UL << place_bytes * 8) - 1);
		if (found < walk->place) {
			low = middle + 1;
		} else if (found > walk->place) {
			high = middle;
		} else {
			walk->list.exit = (u32)(word >> place_bytes * 8 & ((1UL << exit_bytes * 8) - 1)) - 1;
			return walk->list.exit != (u32)-1;
		}
	}
	return 0;
}

/* An element of the array of exits. */
static __attribute__((noinline)) int exit_element(struct np_context *context, const struct np_v8_walk *walk, u32 index,
                                                  u64 *value)
{
	u64 exits;
	return np_v8_field(context, walk->code, walk->v8->code_exits, &exits) &&
	       element(context, walk->v8, walk->v8->array_type, exits, index, value);
}

/* One that is a small integer; -1: it is none. */
static i64 exit_number(struct np_context *context, const struct np_v8_walk *walk, u32 index)
{
	u64 value;
	return exit_element(context, walk, index, &value) && np_v8_is_small(value) ? (i64)(value >> 32) : -1;
}

int np_v8_find_exit(struct np_context *context, struct np_v8_walk *walk)
{
	const struct np_v8 *v8 = walk->v8;
	u64 start, size;
	if (walk->kind != v8->code_optimized || !np_v8_field(context, walk->code, v8->code_start, &start) ||
	    !np_v8_field(context, walk->code, v8->code_size, &size))
		return 0;
	if (find_safepoint(context, walk, start + (u32)size))
		return 1;
	i64 jumps = exit_number(context, walk, v8->exit_start), eager = exit_number(context, walk, v8->exit_eager);
	if (jumps < 0 || (i64)walk->place < jumps || ((i64)walk->place - jumps) % NP_V8_JUMP_BYTES || eager < 0)
		return 0;
	walk->list.exit = (walk->place - (u32)jumps) / NP_V8_JUMP_BYTES;
	return walk->list.exit >= eager && walk->list.exit - eager < exit_number(context, walk, v8->exit_lazy);
}

int np_v8_find_list(struct np_context *context, struct np_v8_walk *walk)
{
	const struct np_v8 *v8 = walk->v8;
	struct np_v8_list *list = &walk->list;
	u64 length;
	i64 start = exit_number(context, walk, v8->exit_first + list->exit * 3);
	if (start < 0 || !exit_element(context, walk, v8->exit_lists, &list->bytes) ||
	    !exit_element(context, walk, v8->exit_literals, &list->literals) ||
	    np_v8_type_of(context, v8, list->bytes) != v8->bytes_type ||
	    !np_v8_field(context, list->bytes, v8->array_length, &length) || !np_v8_is_small(length))
		return 0;
	list->at[0] = (u32)start;
	list->end = length >> 32;
	list->at[1] = list->is_other = list->matching = list->behind = list->read = 0;
	return 1;
}

/* Code objects and their instructions lie apart. Before the instructions are two words: a map, and the code object. */
u64 np_v8_find_code(struct np_context *context, const struct np_v8_walk *walk)
{
	u64 start = walk->pc & ~(NP_V8_CODE_ALIGNMENT - 1UL), code, found;
	for (u32 step = 0; step < NP_V8_CODE_BYTES_MAX / NP_V8_CODE_ALIGNMENT; step++, start -= NP_V8_CODE_ALIGNMENT) {
		if (!np_heap_word(context, start - 8, &code))
			return 0;
		/* Most words are instructions. */
		if (np_v8_is_object(code) && code <= NP_HIGHEST_ADDRESS >> 9 &&
		    np_v8_field(context, code, walk->v8->code_start, &found) && found == start)
			return code;
	}
	return 0;
}
