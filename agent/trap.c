/* SIGTRAP, SIGILL, SIGSEGV and SIGBUS.
 *
 * A thread that arrives at a boundary of a run, or at a `trap` site, meets int3 or an invalid opcode. The redirect table
 * says where it goes on. That reads nothing but the image and the table, private memory, so it works as well in a forked
 * child, in a thread without a context and while a handler runs.
 *
 * A fault at one of the agent's guarded loads resumes at that load's error path. Every other fault is the program's; if
 * it was raised by a relocated instruction, the program sees its original address (where the redirect table names the
 * relocated one; a fault in the middle of an instruction that was relocated as several keeps its rip).
 */
#include "chain.h"
#include "guard.h"

enum { NP_SIGILL = 4, NP_SIGTRAP = 5, NP_SIGBUS = 7, NP_SIGSEGV = 11 };

/* The tracer grows the table by two stores, array first; a miss counts only if both were the same before and after. */
static u64 redirect(u64 from)
{
	for (u32 attempt = 0; attempt < 64; attempt++) {
		u64 count = np_redirect_count();
		const struct np_redirect *redirects = np_redirect_table();
		u64 low = 0, high = count;
		while (low < high) {
			u64 middle = low + (high - low) / 2;
			u64 found = redirects[middle].from;
			if (found == from)
				return redirects[middle].to;
			if (found < from)
				low = middle + 1;
			else
				high = middle;
		}
		if (np_redirect_count() == count && np_redirect_table() == redirects)
			break;
	}
	return 0;
}

NP_SIGNAL void np_on_trap(i32 signal, void *siginfo, void *context)
{
	struct np_siginfo *information = siginfo;
	struct np_ucontext *ucontext = context;
	u64 behind = signal == NP_SIGTRAP; /* int3 leaves rip behind itself, an invalid opcode does not */
	if (information->code > 0) {
		u64 at = ucontext->rip - behind, to = redirect(at);
		if (to) {
			ucontext->rip = to;
			return;
		}
		u64 original = np_original_address(at);
		if (information->address == at && !behind)
			information->address = original;
		ucontext->rip = original + behind;
	}
	np_chain(signal == NP_SIGTRAP ? NP_SLOT_TRAP : NP_SLOT_ILL, signal, information, ucontext);
}

NP_SIGNAL void np_on_fault(i32 signal, void *siginfo, void *context)
{
	struct np_siginfo *information = siginfo;
	struct np_ucontext *ucontext = context;
	if (information->code > 0) {
		for (const struct np_guard *guard = np_guards_start; guard < np_guards_end; guard++) {
			if ((u64)&guard->instruction + (u64)(i64)guard->instruction == ucontext->rip) {
				ucontext->rip = (u64)&guard->recovery + (u64)(i64)guard->recovery;
				return;
			}
		}
		ucontext->rip = np_original_address(ucontext->rip);
	}
	np_chain(signal == NP_SIGBUS ? NP_SLOT_BUS : NP_SLOT_SEGV, signal, information, ucontext);
}

/* rt_sigreturn. Unwinders know it by these very bytes: mov $15, %rax; syscall. */
__asm__(".text\n"
	".globl np_restorer\n"
	".type np_restorer, @function\n"
	"np_restorer:\n"
	"	movq $15, %rax\n"
	"	syscall\n"
	".size np_restorer, . - np_restorer\n");
