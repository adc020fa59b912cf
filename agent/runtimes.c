/* The common part of the frames of all interpreted languages.
 *
 * The names of functions are too long to read at a hit. So a frame holds the number of its code object, the tracer
 * reads the object within milliseconds, and remembers its names. Each object is noted once, in a table that all
 * threads share: a thread that sees an object for the first time claims a word of it. */
#include "runtimes.h"

const struct np_runtimes *np_find_runtimes(const struct np_control *control)
{
	u64 table = np_load_once(control->unwind_offset), limit = control->arena_bytes;
	if (!table || table % 8 || table > limit || limit - table < sizeof(struct np_unwind_table))
		return 0;
	u64 offset = ((const struct np_unwind_table *)((u64)control + table))->runtimes_offset;
	if (!offset || offset % 8 || offset > limit || limit - offset < sizeof(struct np_runtimes) + sizeof(struct np_python))
		return 0;
	return (const struct np_runtimes *)((u64)control + offset);
}

int np_heap_word(struct np_context *context, u64 address, u64 *value)
{
	u64 end = np_readable_end(context, address);
	if (np_likely(end && end - address >= 8))
		return np_guarded_u64(address, value);
	return np_fetch_word(context, address, value);
}

u64 np_interpreted_frame(struct np_context *context, const struct np_runtimes *runtimes, u64 kind, u64 object, u64 check,
                         u32 position)
{
	const u64 unknown = NP_FRAME_INTERPRETED | kind << 30 | NP_OBJECT_NONE;
	struct np_control *control = np_control_block(context);
	u64 offset = runtimes->objects_offset, limit = control->arena_bytes;
	const u64 bytes = sizeof(struct np_runtime_objects) + NP_RUNTIME_OBJECTS * 8UL;
	if (!offset || offset % 8 || offset > limit || limit - offset < bytes)
		return unknown;
	struct np_runtime_objects *objects = (struct np_runtime_objects *)((u64)control + offset);
	if (kind >= NP_RUNTIME_JAVA_INTERPRETER)
		__atomic_fetch_add(&objects->unknown, 1, __ATOMIC_RELAXED);
	if (!object || object % 8 || object > NP_HIGHEST_ADDRESS >> 9)
		return unknown;
	u64 *words = (u64 *)(objects + 1);
	u64 word = object / 8 << 20 | (check & 0x1ffff) << 3 | kind;
	u64 hash = word * 0x9e3779b97f4a7c15UL >> 32;
	for (u32 probe = 0; probe < NP_RUNTIME_PROBES; probe++) {
		u64 index = (hash + probe) % NP_RUNTIME_OBJECTS;
		u64 found = np_load_once(words[index]);
		if (!found && __atomic_compare_exchange_n(&words[index], &found, word, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
			__atomic_fetch_add(&objects->noted, 1, __ATOMIC_RELEASE);
			found = word;
		}
		if (found == word)
			return NP_FRAME_INTERPRETED | (u64)position << 30 | index;
	}
	__atomic_fetch_add(&objects->refused, 1, __ATOMIC_RELAXED);
	return unknown;
}
