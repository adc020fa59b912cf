/* The agent: the code that runs inside the target besides the compiled handlers. contract.h states the purpose of
 * its functions; this file states the rules of its code.
 *
 * The agent runs in another program's process, at an arbitrary instruction of that program. Its rules:
 *
 *   1. No libc, and no other code of the target: the linked image has no undefined symbol.
 *   2. No TLS, no writable byte in the image, which is flat and r-x: all changing data lies in the arena or the
 *      thread table. The tracer writes the header, struct np_image, before a thread runs here.
 *   3. No relocation: everything is reached relative to rip, so the image runs wherever it is written.
 *   4. General registers only, and no string instruction (the direction flag may be set). Every function that a
 *      handler calls is declared NP_ENTRY and preserves every register. The detour saves the flags.
 *   5. Bounded stack: no frame exceeds 256 bytes (the compiler checks it) and no call chain is deeper than four,
 *      so the agent stays below 1 KiB and, with a handler, below 2 KiB. No recursion, no alloca. Go's stacks may
 *      have room for only eight words, so there handlers run on a stack that belongs to the context
 *      (docs/design/stacks.md has all figures).
 *   6. Bounded time: every loop has a bound that is a constant, a limit that the tracer set, or a size that was
 *      checked.
 *   7. No lock but the bucket locks of dynamic variables; the wait for one of these is limited.
 *   8. Memory of the target is only read by the guarded loads of guard.h, from ranges known to be readable, or by a
 *      system call; only copyout and copyoutstr write it, by a system call or guarded stores. A bad pointer is a fault
 *      of the clause, never of the target.
 *   9. A forked child that is not followed writes nothing in the arena.
 *
 * Ordering: x86 keeps stores in order and loads in order. So publication only needs the compiler to
 * keep them in order, too: np_store and np_load_once below. */
#ifndef NANOPROBE_AGENT_H
#define NANOPROBE_AGENT_H

#include "contract.h"

/* Called from handlers and detours. */
#define NP_ENTRY __attribute__((visibility("default"), no_caller_saved_registers, used))
/* A rare path of an NP_ENTRY. It preserves registers itself, so that the usual path need not save them. */
#define NP_COLD __attribute__((noinline, cold, no_caller_saved_registers))
/* Called by the kernel, with the ordinary calling convention. */
#define NP_SIGNAL __attribute__((visibility("default"), used))
#define NP_INLINE static inline __attribute__((always_inline))

#define np_likely(condition) __builtin_expect(!!(condition), 1)
#define np_unlikely(condition) __builtin_expect(!!(condition), 0)

/* A single load, and a single store, in program order with all other such accesses. They access data that other
 * threads or the tracer use, too. */
#define np_load_once(object) __extension__({ \
	__typeof__(object) np_value = __atomic_load_n(&(object), __ATOMIC_ACQUIRE); np_value; })
#define np_store(object, value) __atomic_store_n(&(object), (value), __ATOMIC_RELEASE)

/* The image's first bytes. They are defined in their own file, so that no compiler folds constants
 * that the tracer will write. */
extern const struct np_image np_header;

NP_INLINE struct np_control *np_control_block(const struct np_context *context)
{
	return (struct np_control *)context->control;
}

NP_INLINE u64 np_minimum(u64 left, u64 right)
{
	return left < right ? left : right;
}

/* The context belongs to another thread now. */
void np_thread_changed(struct np_context *context);

/* Sets the clause's fault. Only the first fault of a clause is reported. */
NP_INLINE void np_fault(struct np_context *context, u64 fault, u64 address)
{
	if (!context->fault) {
		context->fault = fault;
		context->fault_address = address;
	}
}

/* The address that a failed function returns. It points to zeros, that is, an empty string. */
extern const u64 np_zeros[8];

#endif
