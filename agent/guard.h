/* Guarded loads and stores: the only instructions of the agent that touch the target's memory.
 *
 * Each is listed in the section .np_guards, with the place to continue at when it faults. np_on_fault finds the
 * faulting rip there, stores the place as the interrupted rip, and returns. So a load that faults acts like a jump
 * to its error path.
 *
 *     .np_guards:   i32 instruction - .     i32 recovery - .     (relative, so the image needs no relocation)
 *
 * Limits: the kernel kills a process whose SIGSEGV cannot be delivered, that is, when the thread blocks it, or
 * when the program replaced our action. This is why ranges.h exists: a guarded load should only be used for
 * addresses that were readable a moment ago. The guard is for the case that the memory was unmapped since.
 */
#ifndef NANOPROBE_GUARD_H
#define NANOPROBE_GUARD_H

#include "agent.h"

struct np_guard {
	i32 instruction;
	i32 recovery;
};
extern const struct np_guard np_guards_start[], np_guards_end[];

#define NP_GUARDED(instruction) \
	"1: " instruction "\n" \
	".pushsection .np_guards, \"a\"\n" \
	".balign 4\n" \
	".long 1b - .\n" \
	".long %l[fault] - .\n" \
	".popsection\n"

/* Each of these loads yields whether it succeeded. */
#define NP_GUARDED_LOAD(name, type, instruction) \
	NP_INLINE int name(u64 address, u64 *value) \
	{ \
		u64 loaded; \
		__asm__ goto(NP_GUARDED(instruction) : "=r"(loaded) : "r"(address) : "memory" : fault); \
		*value = loaded; \
		return 1; \
	fault: \
		return 0; \
	}
NP_GUARDED_LOAD(np_guarded_u64, u64, "movq (%1), %0")
NP_GUARDED_LOAD(np_guarded_u32, u32, "movl (%1), %k0")
NP_GUARDED_LOAD(np_guarded_u16, u16, "movzwl (%1), %k0")
NP_GUARDED_LOAD(np_guarded_u8, u8, "movzbl (%1), %k0")

NP_GUARDED_LOAD(np_guarded_fs_u64, u64, "movq %%fs:(%1), %0")
NP_GUARDED_LOAD(np_guarded_gs_u64, u64, "movq %%gs:(%1), %0")

/* The stores to the target's memory: those of an emulated push or call, and of copyout without a
 * system call. */
NP_INLINE int np_guarded_store_u8(u64 address, u8 value)
{
	__asm__ goto(NP_GUARDED("movb %1, (%0)") : : "r"(address), "r"(value) : "memory" : fault);
	return 1;
fault:
	return 0;
}
NP_INLINE int np_guarded_store_u64(u64 address, u64 value)
{
	__asm__ goto(NP_GUARDED("movq %1, (%0)") : : "r"(address), "r"(value) : "memory" : fault);
	return 1;
fault:
	return 0;
}

/* Replaces one byte by another, if it is still `old`. Only an address that cannot be written makes it fail. */
NP_INLINE int np_guarded_exchange_u8(u64 address, u8 old, u8 new)
{
	u8 there = old;
	__asm__ goto(NP_GUARDED("lock cmpxchgb %2, (%1)") : "+a"(there) : "r"(address), "q"(new) : "memory", "cc" : fault);
	return 1;
fault:
	return 0;
}

/* The thread control block's own address, by the thread pointer; fails if there is no thread pointer yet. */
NP_INLINE int np_guarded_tls_self(u64 *value)
{
	u64 loaded;
	__asm__ goto(NP_GUARDED("movq %%fs:0, %0") : "=r"(loaded) : : "memory" : fault);
	*value = loaded;
	return 1;
fault:
	return 0;
}

#endif
