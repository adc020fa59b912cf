/* Trap sites whose instruction the signal handler executes. See emulate.c and step.c. */
#ifndef NANOPROBE_EMULATE_H
#define NANOPROBE_EMULATE_H

#include "chain.h"

/* The place to which a field of a struct np_emulation refers; 0: the field refers to none. */
NP_INLINE u64 np_place(const i32 *field)
{
	return *field ? (u64)(field + 1) + (u64)(i64)*field : 0;
}

/* Calls the routine that a field refers to, with the registers of the interrupted code. */
NP_INLINE void np_fire(const i32 *field, struct np_ucontext *ucontext)
{
	extern void np_call_routine(u64 routine, struct np_ucontext *ucontext);
	if (*field)
		np_call_routine(np_place(field), ucontext);
}

/* The thread has arrived at a trap site. Fires the probes, and executes the instruction or sends
 * the thread to code that does. Yields whether the instruction is done. */
int np_at_site(const struct np_emulation *emulation, struct np_ucontext *ucontext);

/* The source operand; yields whether it could be read. */
int np_source(const struct np_emulation *emulation, const struct np_ucontext *ucontext, u64 *value);

/* Makes the thread, which is about to continue in the copy, step through it. Does nothing if there is no room for
 * the thread's state, or if the program single-steps itself. */
void np_begin_step(const struct np_emulation *emulation, struct np_ucontext *ucontext);

/* A thread has trapped after an instruction. Yields whether that was a step that the agent had begun. */
int np_end_step(struct np_ucontext *ucontext);

/* A thread was interrupted in another way. If it was stepping for the agent, it stops stepping and continues in
 * the copy. */
void np_cancel_step(struct np_ucontext *ucontext);

#endif
