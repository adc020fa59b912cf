/* Frames of interpreted code, in place of the interpreter's own: see runtimes.c. */
#ifndef NANOPROBE_RUNTIMES_H
#define NANOPROBE_RUNTIMES_H

#include "ranges.h"

/* One native frame of a walk, once its caller is known. */
struct np_native_frame {
	u64 pc;
	u64 low, high;          /* the frame's part of the stack */
	u64 unlinked;           /* the thread stands at the function's entry or exit, where no frame belongs to the call */
};

/* The state of a walk through the thread's Python frames. */
struct np_python_walk {
	u64 looked;             /* the thread has been looked for */
	u64 frame;              /* the next Python frame; 0: there is none, or it is not known */
	u64 record;
};

/* The description of the process's runtimes, of which one is known; 0: there is none. */
const struct np_runtimes *np_find_runtimes(const struct np_control *control);

NP_INLINE const struct np_python *np_python_of(const struct np_runtimes *runtimes)
{
	return (const struct np_python *)(runtimes + 1);
}

/* Whether Python's evaluation function has this address. */
NP_INLINE int np_evaluates(const struct np_runtimes *runtimes, u64 pc)
{
	const struct np_python *python = np_python_of(runtimes);
	for (u32 range = 0; range < 4; range++)
		if (pc - python->code_start[range] < python->code_end[range] - python->code_start[range])
			return 1;
	return 0;
}

/* Writes the Python frames that a call of the evaluation function runs, from index `at` on, in place of the call's
 * own frame. Yields the index after them. If they are not known, the call's own frame stays. */
u64 np_python_frames(struct np_context *context, const struct np_runtimes *runtimes, struct np_python_walk *walk,
                     const struct np_native_frame *native, u64 *frames, u64 at, u64 limit);

/* The frame of a code object, which is noted for the tracer. */
u64 np_interpreted_frame(struct np_context *context, const struct np_runtimes *runtimes, u64 kind, u64 object, u64 check,
                         u32 position);

/* A word of the heap; yields whether it could be read. */
int np_heap_word(struct np_context *context, u64 address, u64 *value);

#endif
