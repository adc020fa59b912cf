/* Records: see ring.c. */
#ifndef NANOPROBE_RING_H
#define NANOPROBE_RING_H

#include "agent.h"

/* The header of a new record, or 0 when there is no room (counted). */
struct np_record *np_ring_reserve(struct np_context *context, u32 epid, u64 bytes);

NP_INLINE u64 np_tsc(void)
{
	u32 low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

/* Time stamp counter and CPU; Linux keeps the CPU's number in the low 12 bits of TSC_AUX. If the ring is untimed,
 * the counter is 0, because reading it takes longer. */
NP_INLINE u64 np_tsc_and_cpu(u32 *cpu, int untimed)
{
	u32 low, high;
	u64 auxiliary;
	if (np_likely(np_header.use_rdpid)) {
		__asm__ volatile("rdpid %0" : "=r"(auxiliary));
		*cpu = (u32)auxiliary & 0xfff;
		return np_unlikely(untimed) ? 0 : np_tsc();
	}
	__asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(auxiliary));
	*cpu = (u32)auxiliary & 0xfff;
	return untimed ? 0 : (u64)high << 32 | low;
}

NP_INLINE void np_ring_commit(struct np_context *context)
{
	u64 pending = context->ring_pending;
	if (!pending)
		return;
	/* There is only one writer, so a plain increment in memory is enough, and np_commit need not save a register for
	 * it. It comes before the store of head. */
	__asm__ volatile("incq %0" : "+m"(context->ring_records) : : "memory");
	np_store(context->ring_head, pending);
	context->ring_pending = 0;
}

#endif
