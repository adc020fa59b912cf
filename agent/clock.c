/* The clocks. Time since boot comes from the time stamp counter and a calibration that the tracer keeps in the control
 * block: ns = clock_ns + ((tsc - clock_tsc) * clock_mult >> 32). */
#include "ring.h"
#include "syscalls.h"

#define NP_CLOCK_THREAD_CPUTIME 3

NP_INLINE u64 nanoseconds(const struct np_control *control, u64 tsc)
{
	/* A counter slightly before the calibration (of another CPU) is a small negative distance. */
	i64 ticks = (i64)((tsc ? tsc : np_tsc()) - control->clock_tsc);
	__int128 product = (__int128)ticks * (i64)control->clock_mult;
	return control->clock_ns + (u64)(product >> 32);
}

NP_ENTRY void np_timestamp(struct np_context *context, u64 tsc)
{
	context->result = nanoseconds(np_control_block(context), tsc);
}

NP_ENTRY void np_walltimestamp(struct np_context *context, u64 tsc)
{
	const struct np_control *control = np_control_block(context);
	context->result = nanoseconds(control, tsc) + control->wall_ns;
}

NP_ENTRY void np_vtimestamp(struct np_context *context)
{
	u64 time[2] = { 0, 0 };
	context->result = 0;
	if (!np_may_call() || np_syscall4(NP_SYS_CLOCK_GETTIME, NP_CLOCK_THREAD_CPUTIME, (u64)time, 0, 0) < 0)
		np_fault(context, NP_FAULT_ILLEGAL, 0);
	else
		context->result = time[0] * 1000000000UL + time[1];
}

NP_ENTRY void np_cpu(struct np_context *context)
{
	u32 cpu;
	np_tsc_and_cpu(&cpu, 1);
	context->result = cpu;
}
