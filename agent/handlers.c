/* Where the program's signal handlers begin: `proc:::signal-handle` and `proc:::fault` fire there.
 *
 * The kernel delivers signals, and none of our code is in its way. But a handler's first instruction can be probed like
 * a function's. The tracer finds the handlers that are installed when it attaches. One that the program installs later
 * is seen by the shim of rt_sigaction: it puts a new address on a list in the thread table, and the thread waits
 * until the tracer has placed the probes, as after dlopen, under the same limits (library.c).
 *
 * A thread may come to this instruction in other ways than by a signal. What tells them apart:
 *
 *     call handler            the return address is not that of the code that ends a signal (the restorer)
 *     jump to the handler     as the last act of another handler: the stack is the same, and the return address, too.
 *                             But the program has set the other handler for this signal, not this one
 *
 * The second look alone would lose a signal whose handler is being replaced: the kernel has chosen the old one, and the
 * record has the new one. So it counts, too, if the thread's registers are those that the kernel has saved in the
 * frame: the kernel changes rax, rdi, rsi and rdx only, and rax to 0. */
#include "handlers.h"
#include "guard.h"
#include "made.h"
#include "redirects.h"
#include "syscalls.h"
#include "threads.h"

#define NP_SA_SIGINFO 4UL

/* mov $15, %rax, and mov $15, %eax: what ends a signal has one of them before its `syscall`. */
#define NP_RESTORER 0x0000000fc0c748UL
#define NP_RESTORER_BYTES 7
#define NP_SHORT_RESTORER 0x0000000fb8UL
#define NP_SHORT_RESTORER_BYTES 5
#define NP_SYSCALL_CODE 0x050fu
#define NP_INT3 0xccu
#define NP_JUMP 0xe9u
#define NP_JUMP_BYTES 5

/* The index of a handler on the list; NP_HANDLERS: it is not there. */
static u32 index_of(const struct np_inherited *own, u64 handler)
{
	u32 count = (u32)np_minimum(np_load_once(own->handler_count), NP_HANDLERS);
	for (u32 index = 0; index < count; index++) {
		if (np_load_once(own->places[index]) == handler)
			return index;
	}
	return NP_HANDLERS;
}

/* Puts a handler on the list. Yields whether there was room. */
static int add(struct np_inherited *own, u64 handler)
{
	if (np_load_once(own->handler_count) >= NP_HANDLERS)
		return 0;
	u32 index = __atomic_fetch_add(&own->handler_count, 1, __ATOMIC_SEQ_CST);
	if (index >= NP_HANDLERS)
		return 0;
	np_store(own->places[index], handler);
	return 1;
}

void np_note_handler(struct np_thread_table *table, u64 signal, const struct np_sigaction *new)
{
	struct np_control *control = (struct np_control *)np_header.control;
	if (!np_load_once(control->watches_handlers) || !np_is_traced(table))
		return;
	struct np_inherited *own = &table->inherited;
	if (new->flags & NP_SA_SIGINFO)
		__atomic_fetch_or(&own->with_information, np_bit(signal), __ATOMIC_RELAXED);
	else
		__atomic_fetch_and(&own->with_information, ~np_bit(signal), __ATOMIC_RELAXED);
	np_store(own->handlers[signal - 1], new->handler);
	if (new->handler <= NP_SIG_IGN)
		return;
	u32 index = index_of(own, new->handler);
	if (index < np_load_once(own->handlers_placed))
		return;
	/* Another thread may have put it there, and waits. A child has a list of its own, which nobody reads. */
	if (!table->began && (index < NP_HANDLERS || add(own, new->handler)))
		np_wait_for_tracer();
	else
		__atomic_fetch_add(&control->handlers_unseen, 1, __ATOMIC_RELAXED);
}

/* Where the instruction at an address is now: a probe of rt_sigreturn displaces the load of its number. A detour
 * begins with the instruction that it displaces. */
static u64 displaced_to(u64 address, u64 code)
{
	struct np_redirect found;
	if ((u8)code == NP_JUMP)
		return address + NP_JUMP_BYTES + (u64)(i64)(i32)(code >> 8);
	if ((u8)code == NP_INT3 && np_redirect_before(address, &found) && found.from == address &&
	    !(found.to & (NP_REDIRECT_EMULATION | NP_REDIRECT_CALL)))
		return found.to;
	return 0;
}

/* Whether this code loads the number of rt_sigreturn, and the call stands after it in the program's own text. */
NP_INLINE int ends_signal(u64 address, u64 code)
{
	u64 call;
	u64 bytes = (code & ((1UL << 8 * NP_RESTORER_BYTES) - 1)) == NP_RESTORER ? NP_RESTORER_BYTES :
		    (code & ((1UL << 8 * NP_SHORT_RESTORER_BYTES) - 1)) == NP_SHORT_RESTORER ? NP_SHORT_RESTORER_BYTES : 0;
	return bytes && np_guarded_u16(address + bytes, &call) && call == NP_SYSCALL_CODE;
}

/* Whether the code at an address ends a signal. */
static int is_restorer(u64 address)
{
	u64 code, displaced;
	if (!np_guarded_u64(address, &code))
		return 0;
	if (ends_signal(address, code))
		return 1;
	displaced = displaced_to(address, code);
	return displaced && np_guarded_u64(displaced, &code) && ends_signal(address, code);
}

/* What `mixed` is while the registers are those that the kernel has saved; yields whether these can be read. */
NP_INLINE int mixed_in_frame(u64 ucontext, u64 *mixed)
{
	static const u16 places[] = {
		__builtin_offsetof(struct np_ucontext, rcx), __builtin_offsetof(struct np_ucontext, r8),
		__builtin_offsetof(struct np_ucontext, r9), __builtin_offsetof(struct np_ucontext, r10),
		__builtin_offsetof(struct np_ucontext, r11),
	};
	static const u8 factors[] = { 1, 3, 5, 7, 11 };
	*mixed = 0;
	for (u32 index = 0; index < sizeof(factors); index++) {
		u64 value;
		if (!np_guarded_u64(ucontext + places[index], &value))
			return 0;
		*mixed += factors[index] * value;
	}
	return 1;
}

NP_ENTRY void np_signal_frame(struct np_context *context, u64 stack, u64 signal, u64 site, u64 mixed)
{
	const struct np_inherited *own = &((const struct np_thread_table *)np_header.table)->inherited;
	u64 saved, returns_to;
	context->result = 0;
	if (signal - 1 >= NP_SIGNALS || !np_guarded_u64(stack, &returns_to) || !is_restorer(returns_to))
		return;
	/* The frame begins with the return address, and goes on with the ucontext. */
	if (np_load_once(own->handlers[signal - 1]) != site &&
	    !(mixed_in_frame(stack + sizeof(u64), &saved) && saved == mixed))
		return;
	/* Our own actions, which hand these signals on, always ask for a siginfo. */
	int is_there = np_slot_of(signal) >= 0 || np_load_once(own->with_information) & np_bit(signal);
	context->result = is_there ? NP_DELIVERED_WITH_INFORMATION : NP_DELIVERED;
}
