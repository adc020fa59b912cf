/* Hits that were left by siglongjmp, from a signal handler that had interrupted a probe's handler (hit.h).
 * agent/enter.c does the same for sessions.
 *
 * Where this cannot be found out, the hit counts as not left: on an alternate stack, and under seccomp, where the
 * kernel may not be asked. (The answer may be wrong, as in sessions, for a program that switches stacks in a signal
 * handler and is hit there. It may also be wrong for an alternate stack that lies above the thread's stack and disarms
 * itself, SS_AUTODISARM.)
 */
#include "hit.h"
#include "places.h"
#include "raw.h"

#include <sys/syscall.h>
#include <unwind.h>

extern NP_HIDDEN const char __start_np_hit_path[], __stop_np_hit_path[];

/* A distance between stack pointers, in bytes. A hit in a function that a handler calls is deeper than the handler's
 * own hit by more than this, because registers and return addresses lie between. Hits at sites of one function, or
 * of functions called from one place, differ by less. */
enum { ABOUT = 128 };

static NP_PATH int may_be_on_alternate_stack(void)
{
	enum { ON_STACK = 1 };
	struct {
		uint64_t address;
		int32_t flags;
		uint64_t bytes;
	} stack = { 0, ON_STACK, 0 };
	if (np_hit_sandboxed && *np_hit_sandboxed)
		return 1;
	return np_raw_call(SYS_sigaltstack, 0, (long)&stack, 0, 0, 0, 0) != 0 || (stack.flags & ON_STACK) != 0;
}

static NP_PATH __attribute__((noinline)) void leave(struct np_hit_thread *self)
{
	self->current = NULL;
	self->recoverable = 0;
	self->jprobe = 0;
	np_retprobe_abandoned_handler(self);
	__atomic_store_n(&self->epoch, self->epoch + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&self->depth, 0, __ATOMIC_RELEASE);
}

NP_PATH __attribute__((noinline)) int np_hit_is_left(struct np_hit_thread *self, uint64_t rsp,
						     const struct np_hit_stack *alternate)
{
	if (rsp + ABOUT < self->depth)
		return 0;
	if (alternate ? rsp - alternate->start < alternate->bytes : may_be_on_alternate_stack())
		return 0;
	leave(self);
	return 1;
}

/* The thread's chain of active calls, from the present function up to its callers. */
struct chain {
	int is_in_path;  /* whether one of the calls is in the hit path */
	int is_whole;    /* whether the calls were followed up to the thread's first call */
};

static _Unwind_Reason_Code look(struct _Unwind_Context *context, void *argument)
{
	struct chain *chain = argument;
	uint64_t address = _Unwind_GetIP(context);
	chain->is_in_path = address - (uint64_t)__start_np_hit_path <
			    (uint64_t)__stop_np_hit_path - (uint64_t)__start_np_hit_path;
	/* A call without unwinding information ends the chain, too, but has an address. */
	chain->is_whole = address == 0;
	return chain->is_in_path ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

/* Whether the calling thread, which calls a function of the library, is inside of a handler. The depth of the
 * stack does not show this: another function may be as deep as a handler. So this follows the chain of calls, and
 * a handler's chain leads to the hit path. If the chain cannot be followed to its end, the thread counts as
 * inside. */
int np_hit_is_inside(void)
{
	struct np_hit_thread *self = np_hit_self;
	if (!self || !self->depth)
		return 0;
	if (np_hit_is_left(self, (uint64_t)__builtin_frame_address(0), NULL))
		return 0;
	struct chain chain = { 0, 0 };
	_Unwind_Backtrace(look, &chain);
	if (chain.is_in_path || !chain.is_whole)
		return 1;
	leave(self);
	return 0;
}
