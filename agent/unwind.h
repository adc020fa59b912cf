/* Walks the calling thread's stack: see unwind.c. */
#ifndef NANOPROBE_UNWIND_H
#define NANOPROBE_UNWIND_H

#include "agent.h"

/* Writes at most `limit` frames, innermost first; yields their number. */
u64 np_walk(struct np_context *context, u64 *frames, u64 limit);

#endif
