/* Hits that were left by siglongjmp, from a signal handler that had interrupted a probe's handler (hit.h). The same as of
 * sessions: agent/enter.c.
 *
 * What cannot be told apart is taken for one that goes on: on an alternate stack, and under seccomp, where the kernel may not
 * be asked. (A program that switches stacks in a signal handler and is hit there, or whose alternate stack lies above and
 * disarms itself, SS_AUTODISARM, could be misjudged, as there.)
 */
#include "hit.h"
#include "places.h"
#include "raw.h"

#include <sys/syscall.h>

/* What a handler calls itself is deeper than this, by the saved registers, and by return addresses. Sites of one function,
 * or of several that are called from one place, are about as deep. */
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

NP_PATH __attribute__((noinline)) int np_hit_is_left(struct np_hit_thread *self, uint64_t rsp,
						     const struct np_hit_stack *alternate)
{
	if (rsp + ABOUT < self->depth)
		return 0;
	if (alternate ? rsp - alternate->start < alternate->bytes : may_be_on_alternate_stack())
		return 0;
	self->current = NULL;
	self->recoverable = 0;
	self->jprobe = 0;
	np_retprobe_abandoned_handler(self);
	__atomic_store_n(&self->epoch, self->epoch + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&self->depth, 0, __ATOMIC_RELEASE);
	return 1;
}

/* Asked far below whoever calls the library; so one that has left a hit, and was hit by nothing since, may count as inside. */
int np_hit_is_inside(void)
{
	struct np_hit_thread *self = np_hit_self;
	return self && self->depth && !np_hit_is_left(self, (uint64_t)__builtin_frame_address(0), NULL);
}
