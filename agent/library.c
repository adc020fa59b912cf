/* The dynamic linker has changed its list of libraries: the tracer gets a moment to place probes in
 * a new library before its code runs.
 *
 * A counter and a futex notify the tracer, which answers by library_ack. The wait ends with the answer, or when
 * the tracer's last heartbeat is older than its limit: a dead tracer costs the target nothing. A living tracer is
 * at work. Probes on every instruction of a large library take it seconds, and continuing without them would lose
 * hits without counting them. The limit of a minute is for a tracer whose heartbeat goes on but that never
 * answers. Each time the program goes on without an answer is counted, because hits before the probes are placed
 * are not recorded. */
#include "made.h"
#include "ring.h"
#include "syscalls.h"

#define NP_WAIT_NS 60000000000UL
#define NP_NAP_NS 1000000UL
/* Without system calls or a calibrated clock, the wait is limited by a number of looks. */
#define NP_LOOKS 1000000u
enum { NP_FUTEX_WAIT = 0, NP_FUTEX_WAKE = 1 };

NP_INLINE void announce(struct np_control *control)
{
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

NP_ENTRY void np_library_event(struct np_context *context)
{
	struct np_control *control = np_control_block(context);
	/* The tracer places probes in the libraries of the traced process only. */
	if (context->process_began) {
		__atomic_fetch_add(&control->child_libraries, 1, __ATOMIC_RELAXED);
		return;
	}
	announce(control);
}

/* The program has made memory executable (made.c). */
void np_wait_for_tracer(void)
{
	announce((struct np_control *)np_header.control);
}

/* The entry for a detour, which calls it like a handler. It changes no flag before np_library_event, which may
 * change them like any handler. */
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
