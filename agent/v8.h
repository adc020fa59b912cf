/* V8's frames: see v8.c. */
#ifndef NANOPROBE_V8_H
#define NANOPROBE_V8_H

#include "runtimes.h"

/* The frame of a function of JavaScript in place of the native one at `fp`, which returns to `pc`; 0: it is none.
 * `is_made`: that code was made at run time. */
u64 np_v8_frame(struct np_context *context, const struct np_runtimes *runtimes, u64 fp, u64 pc, int is_made);

#endif
