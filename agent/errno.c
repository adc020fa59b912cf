/* The thread's errno: a word of its C library, at an offset from the thread pointer that the tracer
 * has found (crates/patch/src/thread_local.rs). */
#include "agent.h"
#include "guard.h"
#include "threads.h"

NP_ENTRY void np_errno(struct np_context *context)
{
	u64 offset = np_load_once(np_control_block(context)->errno_offset);
	u64 value = 0;
	/* Guarded: a thread that has no thread pointer of its own yet has no errno. */
	if (!offset || context->thread_key & NP_KEY_OF_NUMBER || !np_guarded_u32(context->thread_key + offset, &value))
		value = 0;
	context->result = value;
}
