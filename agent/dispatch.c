/* A thread is about to turn Syscall User Dispatch on (prctl 59; emulators of other systems use it). From then on the
 * kernel raises SIGSYS for each call of the thread outside of a range that the program chooses: for calls of our shims
 * and handlers, too. The program would be told of calls at addresses that it does not know. So tracing ends before:
 *
 *     agent    notes the place of the thread's registers in the thread table, tells the tracer, and waits
 *     tracer   takes everything back, and moves the thread to the program's own `syscall`, with the registers that it
 *              had when it came to the shim (crates/session/src/detach/dispatching.rs)
 *
 * So no call of ours is made after the program's. A thread that waits beside another one is not moved: it goes on when
 * it sees that the text is the program's again. The wait ends, too, if the tracer's heartbeat is old, and after
 * NP_DISPATCH_WAIT_NS. Then the program is disturbed, as by a tracer that was killed. While the tracer takes everything
 * back, it has no heartbeat. */
#include "sandbox.h"
#include "ring.h"
#include "threads.h"

#define NP_DISPATCH_WAIT_NS 30000000000UL
#define NP_DISPATCH_NAP_NS 200000UL
#define NP_DISPATCH_LOOKS 300000u

void np_shim_dispatch(const struct np_registers *registers, u64 syscall)
{
	struct np_control *control = (struct np_control *)np_header.control;
	struct np_thread_table *table = np_table_of_process();
	if (!table || table->began || !np_may_call() || !np_is_traced(table))
		return;
	struct np_inherited *own = &table->inherited;
	u64 found = 0, start = np_tsc(), nap[2] = { 0, NP_DISPATCH_NAP_NS };
	int is_first = __atomic_compare_exchange_n(&own->dispatch_registers, &found, NP_DISPATCH_BUSY, 0,
						   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	if (is_first) {
		np_store(own->dispatch_syscall, syscall);
		__atomic_store_n(&own->dispatch_registers, (u64)registers, __ATOMIC_RELEASE);
		__atomic_store_n(&control->dispatch_waits, 1, __ATOMIC_RELEASE);
	}
	for (u32 look = 0; look < NP_DISPATCH_LOOKS; look++) {
		u64 now = np_tsc(), heartbeat = np_load_once(control->tracer_heartbeat);
		if (np_load_once(control->state) == NP_STATE_RESTORED && !is_first)
			break;
		if (heartbeat && (i64)(now - heartbeat) > (i64)control->heartbeat_limit)
			break;
		if ((u64)((unsigned __int128)(now - start) * control->clock_mult >> 32) > NP_DISPATCH_WAIT_NS)
			break;
		np_syscall4(NP_SYS_NANOSLEEP, (u64)nap, 0, 0, 0);
	}
	if (is_first) {
		__atomic_store_n(&control->dispatch_waits, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&own->dispatch_registers, 0, __ATOMIC_RELEASE);
	}
}
