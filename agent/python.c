/* Python's frames. They lie on the heap, and live no longer than their calls, so the agent reads them at the hit.
 *
 *     _PyRuntime -> interpreter -> ... -> thread -> innermost frame -> ... -> outermost frame
 *
 * A native frame of the evaluation function stands for the Python frames that this call of it runs. From Python
 * 3.11 on a part of each call lies in the native frame, on the C stack: then only Python frames that fit the native
 * frame are taken. Up to 3.10 each call runs one frame, and both walks take the same steps.
 *
 * The thread is found by its pthread_t, which is its thread pointer: first among the threads that the runtime says are
 * running, then in the list of all threads. Other threads change that list meanwhile, so it is read with a bound, and a
 * thread that is not found has no Python frames. */
#include "runtimes.h"

#define NP_PYTHON_THREADS_MAX 1024
#define NP_PYTHON_INTERPRETERS_MAX 64
#define NP_PYTHON_FRAMES_MAX 8192

/* Offsets in a bytes object: of its size, and of its content. */
#define NP_PYTHON_SIZE 16
#define NP_PYTHON_CONTENT 32

/* Looks at a thread state; yields whether it is the calling thread's, and runs frames. */
static int take_thread(struct np_context *context, const struct np_python *python, u64 thread, u64 self,
                       struct np_python_walk *walk)
{
	u64 key, first;
	if (!np_heap_word(context, thread + python->thread_key, &key) || key != self ||
	    !np_heap_word(context, thread + python->thread_frame, &first) || !first)
		return 0;
	walk->record = 0;
	walk->frame = first;
	if (!python->has_record)
		return 1;
	walk->record = first;
	if (np_heap_word(context, first + python->record_frame, &walk->frame) && walk->frame)
		return 1;
	walk->frame = 0;
	return 0;
}

static void find_thread(struct np_context *context, const struct np_python *python, struct np_python_walk *walk)
{
	u64 self, thread, interpreter;
	u32 left = NP_PYTHON_THREADS_MAX;
	if (!np_guarded_tls_self(&self))
		return;
	if (python->current && np_heap_word(context, python->current, &thread) && thread &&
	    take_thread(context, python, thread, self, walk))
		return;
	if (!np_heap_word(context, python->interpreters, &interpreter))
		return;
	for (u32 count = 0; interpreter && count < NP_PYTHON_INTERPRETERS_MAX; count++) {
		if (!np_heap_word(context, interpreter + python->interpreter_threads, &thread))
			return;
		for (; thread && left; left--) {
			if (take_thread(context, python, thread, self, walk))
				return;
			if (!np_heap_word(context, thread + python->thread_next, &thread))
				return;
		}
		if (!np_heap_word(context, interpreter + python->interpreter_next, &interpreter))
			return;
	}
}

/* The byte at an address. */
static int heap_byte(struct np_context *context, u64 address, u64 *byte)
{
	u64 word;
	if (!np_heap_word(context, address & ~7UL, &word))
		return 0;
	*byte = word >> address % 8 * 8 & 0xff;
	return 1;
}

/* The position of a frame in its code: bytes from its first instruction. */
static u32 position(struct np_context *context, const struct np_python *python, u64 frame, u64 code)
{
	u64 word, bytes;
	if (!np_heap_word(context, frame + python->frame_instruction, &word))
		return NP_POSITION_NONE;
	if (python->form == NP_PYTHON_OBJECTS)
		bytes = (u64)(i64)(i32)word * python->instruction_unit;
	else
		bytes = word - (code + python->code_instructions);
	return bytes < NP_POSITION_NONE ? (u32)bytes : NP_POSITION_NONE;
}

/* A check of what a code object contains: its name, its file, its first line, and its table of lines. Objects that are
 * made one after the other from similar text lie in the same places, so the content of the table counts, too. */
static int check_code(struct np_context *context, const struct np_python *python, u64 code, u64 *check)
{
	u64 words[7], table = 0, mixed = 0;
	if (!np_heap_word(context, code + python->code_name, &words[0]) ||
	    !np_heap_word(context, code + python->code_filename, &words[1]) ||
	    !np_heap_word(context, code + python->code_line, &words[2]) ||
	    !np_heap_word(context, code + python->code_table, &table) ||
	    !np_heap_word(context, table + NP_PYTHON_SIZE, &words[4]) ||
	    !np_heap_word(context, table + NP_PYTHON_CONTENT, &words[5]) ||
	    !np_heap_word(context, table + NP_PYTHON_CONTENT + words[4] - 8, &words[6]))
		return 0;
	words[2] &= 0xffffffff;
	words[3] = table;
	for (u32 index = 0; index < 7; index++)
		mixed = (mixed << 23 | mixed >> 41) * 0x9e3779b97f4a7c15UL + words[index];
	*check = mixed * 0x9e3779b97f4a7c15UL >> 47;
	return 1;
}

static u64 frame_of(struct np_context *context, const struct np_runtimes *runtimes, u64 frame)
{
	const struct np_python *python = np_python_of(runtimes);
	u64 code, check;
	if (!np_heap_word(context, frame + python->frame_code, &code) || !check_code(context, python, code, &check))
		return np_interpreted_frame(context, runtimes, NP_RUNTIME_PYTHON, 0, 0, 0);
	return np_interpreted_frame(context, runtimes, NP_RUNTIME_PYTHON, code, check,
	                            position(context, python, frame, code));
}

/* Takes the frames down to the end of the call. Yields the index after the last frame; 0: the frames do not fit the
 * native frame. */
static u64 take_call(struct np_context *context, const struct np_runtimes *runtimes, struct np_python_walk *walk,
                     const struct np_native_frame *native, u64 *frames, u64 at, u64 limit)
{
	const struct np_python *python = np_python_of(runtimes);
	u64 frame = walk->frame, count = at, previous, end = 1, is_shim;
	for (u32 steps = 0; frame && steps < NP_PYTHON_FRAMES_MAX; steps++) {
		if (python->form != NP_PYTHON_OBJECTS && !heap_byte(context, frame + python->frame_end, &end))
			return 0;
		is_shim = python->form == NP_PYTHON_SHIMS && end == NP_PYTHON_SHIM_OWNER;
		if (is_shim && frame - native->low >= native->high - native->low)
			return 0;
		if (!is_shim && count < limit)
			((volatile u64 *)frames)[count++] = frame_of(context, runtimes, frame);
		/* The caller has verified that the record lies in the native frame; `frames` has no room for further frames of a
		 * deep recursion. */
		if (count == limit && python->form == NP_PYTHON_RECORDS)
			return count;
		if (!np_heap_word(context, frame + python->frame_previous, &previous))
			previous = 0;
		if (python->form == NP_PYTHON_SHIMS ? is_shim : end) {
			walk->frame = previous;
			if (python->form == NP_PYTHON_RECORDS &&
			    !np_heap_word(context, walk->record + python->record_previous, &walk->record))
				walk->frame = 0;
			return count;
		}
		frame = previous;
	}
	/* Else the next native frame would stand for the same Python frames. */
	walk->frame = 0;
	return 0;
}

u64 np_python_frames(struct np_context *context, const struct np_runtimes *runtimes, struct np_python_walk *walk,
                     const struct np_native_frame *native, u64 *frames, u64 at, u64 limit)
{
	if (!walk->looked) {
		walk->looked = 1;
		find_thread(context, np_python_of(runtimes), walk);
	}
	u64 own = at + 1;
	if (!walk->frame || native->unlinked)
		return own;
	if (np_python_of(runtimes)->form == NP_PYTHON_RECORDS && walk->record - native->low >= native->high - native->low)
		return own;
	u64 count = take_call(context, runtimes, walk, native, frames, at, limit);
	if (count > at)
		return count;
	((volatile u64 *)frames)[at] = native->pc;
	return own;
}
