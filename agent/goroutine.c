/* Which goroutine a thread of a Go program runs. The tracer knows where the runtime
 * keeps this (crates/session/src/goroutines.rs).
 *
 *     thread pointer + slot -> g of the stack in use -> m of the thread -> g of the goroutine -> its number
 *
 * On a stack of the runtime, on a signal stack, and in C code that Go has called, the first g is not the goroutine's,
 * but its m is still the thread's. Before a thread has an m, and in a thread of C, the slot holds 0.
 */
#include "agent.h"
#include "guard.h"

NP_ENTRY void np_goroutine(struct np_context *context, u64 slot, u64 offsets, u64 task)
{
	u64 g = 0, m = 0, current = 0, number = 0;
	/* Guarded: a thread may have no thread pointer yet, and the program may store anything in
	 * the slot. */
	int known = np_guarded_fs_u64(slot, &g) && g && np_guarded_u64(g + (offsets & 0xffff), &m) && m &&
	            np_guarded_u64(m + (offsets >> 16 & 0xffff), &current) && current &&
	            np_guarded_u64(current + (offsets >> 32 & 0xffff), &number);
	if (!known)
		number = 0;
	context->result = number || !task ? number : NP_TASK_OF_THREAD | context->tid;
}
