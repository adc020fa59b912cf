/* The dynamic linker has changed its list of libraries: the tracer gets a moment to place probes in a new one before
 * its code runs.
 *
 * It is told by a counter and a futex, and answers by library_ack. The wait ends with the answer, or when the tracer's
 * heartbeat is older than its limit: a dead tracer costs the target nothing. A tracer that lives is at work: probes on
 * every instruction of a large library take it seconds, and to go on without them would lose hits that nobody counts.
 * The bound of a minute is for one that beats and never answers. Whenever the program goes on without an answer, that
 * is counted: what it does then, before the probes are there, nobody records.
 */
#include "ring.h"
#include "syscalls.h"

#define NP_WAIT_NS 60000000000UL
#define NP_NAP_NS 1000000UL
/* Without system calls or a calibrated clock the wait is so many looks. */
#define NP_LOOKS 1000000u
enum { NP_FUTEX_WAIT = 0, NP_FUTEX_WAKE = 1 };

NP_ENTRY void np_library_event(struct np_context *context)
{
	struct np_control *control = np_control_block(context);
	u32 event = __atomic_add_fetch(&control->library_event, 1, __ATOMIC_SEQ_CST);
	u64 start = np_tsc(), nap[2] = { 0, NP_NAP_NS };
	int may_call = np_may_call();
	if (may_call)
		np_syscall6(NP_SYS_FUTEX, (u64)&control->library_event, NP_FUTEX_WAKE, 1, 0, 0, 0);
	for (u32 look = 0; look < NP_LOOKS; look++) {
		u32 answered = np_load_once(control->library_ack);
		u64 now = np_tsc();
		u64 heartbeat = np_load_once(control->tracer_heartbeat);
		if ((i32)(answered - event) >= 0 || !heartbeat || np_load_once(control->exit_requested))
			return;
		if ((i64)(now - heartbeat) > (i64)control->heartbeat_limit)
			break;
		if ((u64)((unsigned __int128)(now - start) * control->clock_mult >> 32) > NP_WAIT_NS)
			break;
		if (may_call)
			np_syscall6(NP_SYS_FUTEX, (u64)&control->library_ack, NP_FUTEX_WAIT, answered, (u64)nap, 0, 0);
		else
			__builtin_ia32_pause();
	}
	__atomic_fetch_add(&control->library_timeouts, 1, __ATOMIC_RELAXED);
}

/* For a detour: as a handler is called, and as it returns. No flag is touched before np_library_event, which as every
 * handler may change them. */
__asm__(".text\n"
	".globl np_library_event_handler\n"
	".type np_library_event_handler, @function\n"
	"np_library_event_handler:\n"
	"	pushq %rdi\n"
	"	movq %r15, %rdi\n"
	"	call np_library_event\n"
	"	popq %rdi\n"
	"	ret\n"
	".size np_library_event_handler, . - np_library_event_handler\n");
