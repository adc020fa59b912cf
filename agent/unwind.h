/* Walks the calling thread's stack: see unwind.c. */
#ifndef NANOPROBE_UNWIND_H
#define NANOPROBE_UNWIND_H

#include "agent.h"

/* One frame of a walk. */
struct np_cursor {
	u64 pc;
	u64 rsp;
	u64 rbp;
	u64 exact; /* pc is an instruction's own address, not a return address */
};

/* From the canonical address to the caller; `saved_rbp` is where the caller's rbp is, 0: unchanged. */
int np_step_to(struct np_context *context, struct np_cursor *cursor, u64 cfa, u64 saved_rbp);

/* Writes at most `limit` frames, innermost first; yields their number. */
u64 np_walk(struct np_context *context, u64 *frames, u64 limit);

#endif
