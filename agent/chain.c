/* Passes a signal on to the program, as if the agent had no handler.
 *
 * np_program_actions() has the program's own action. The agent carries it out like the kernel, with these
 * differences:
 *
 *   - the signal frame already lies where our own action put it (the tracer installs ours with the program's SA_ONSTACK
 *     for that reason);
 *   - the handler returns to the program's own restorer, so that no address of ours stays on the stack. A thread may
 *     sleep for hours above the remains of a frame, and with our address in them it would seem to return to us. A
 *     shadow stack, where there is one, holds the address of our restorer, so there the handler returns to ours;
 *   - SA_RESETHAND changes only our record of the action. In a forked child that is not followed it changes nothing,
 *     since such a child must not write the record;
 *   - SIGTRAP, SIGILL, SIGSEGV and SIGBUS are not blocked while the handler runs, whatever the action says: the handler
 *     may meet our traps;
 *   - where system calls are not allowed, only the signal itself is blocked while the action's handler runs, not the
 *     action's mask.
 *
 * A program that must die does so by the same signal. The default action is restored and the same siginfo is
 * queued again. So the kernel delivers the signal when our handler returns, with the interrupted registers
 * unchanged. If the kernel refuses, or if system calls are not allowed, the agent causes the same kind of fault
 * here, where the signal is blocked. The kernel then kills the process at once (a core file shows this place).
 */
#include "chain.h"
#include "syscalls.h"
#include "threads.h"

#define NP_SA_RESTORER 0x04000000UL
#define NP_SA_RESETHAND 0x80000000UL

/* Yields whether the kernel will deliver the signal again. */
static int queue_again(i32 signal, const struct np_siginfo *information)
{
	struct np_sigaction action = { NP_SIG_DFL, NP_SA_RESTORER, (u64)np_restorer, 0 };
	if (!np_may_call() || np_syscall4(NP_SYS_RT_SIGACTION, (u64)signal, (u64)&action, 0, 8) < 0)
		return 0;
	i64 process = np_syscall4(NP_SYS_GETPID, 0, 0, 0, 0), thread = np_syscall4(NP_SYS_GETTID, 0, 0, 0, 0);
	return np_syscall4(NP_SYS_RT_TGSIGQUEUEINFO, (u64)process, (u64)thread, (u64)signal, (u64)information) == 0;
}

static void die(enum np_signal_slot slot, i32 signal, const struct np_siginfo *information)
{
	if (queue_again(signal, information))
		return;
	switch (slot) {
	case NP_SLOT_TRAP:
		__asm__ volatile("int3");
		break;
	case NP_SLOT_ILL:
		__asm__ volatile("ud2");
		break;
	case NP_SLOT_SEGV:
		__asm__ volatile("hlt");
		break;
	case NP_SLOT_FPE: {
		u64 zero = 0;
		__asm__ volatile("xorl %%edx, %%edx; xorl %%eax, %%eax; divq %0" : : "r"(zero) : "rax", "rdx", "cc");
		break;
	}
	case NP_SLOT_BUS: /* alignment checks on, and an unaligned load */
		__asm__ volatile("pushfq; orq $0x40000, (%rsp); popfq; movl 1(%rsp), %eax");
		break;
	}
}

/* Begins the handler where the kernel would: the stack pointer is at the frame, which begins with the address to which
 * the handler returns. Nothing of ours stays on the stack, whatever the compiler makes of the way here. */
__attribute__((noreturn)) void np_enter_handler(i32 signal, void *information, void *ucontext, u64 handler);
__asm__(".text\n"
	".type np_enter_handler, @function\n"
	"np_enter_handler:\n"
	"	leaq -8(%rdx), %rsp\n"
	"	xorl %eax, %eax\n"
	"	jmp *%rcx\n"
	"	ud2\n" /* no speculation goes on here */
	".size np_enter_handler, . - np_enter_handler\n");

void np_chain(enum np_signal_slot slot, i32 signal, struct np_siginfo *information, struct np_ucontext *ucontext)
{
	struct np_thread_table *table = np_table_of_process();
	struct np_control *control = (struct np_control *)np_header.control;
	struct np_sigaction *action = &np_program_actions()[slot];
	u64 handler = action->handler, flags = action->flags, restorer = action->restorer;
	int sent = information->code <= 0;
	if (handler == NP_SIG_IGN && sent)
		return;
	if (handler == NP_SIG_DFL || handler == NP_SIG_IGN) {
		die(slot, signal, information);
		return;
	}
	if (flags & NP_SA_RESETHAND && table) {
		np_store(action->handler, NP_SIG_DFL);
		if (!table->began)
			np_store(control->actions[slot].handler, NP_SIG_DFL);
	}
	/* Our actions block all signals, so that no handler of the program interrupts us while our own signal is blocked. The
	 * program's handler runs with the mask that the kernel would set, except for the four signals, because it may execute
	 * our traps. The return from the signal ends all of this. */
	if (np_may_call()) {
		u64 mask = (ucontext->mask | action->mask) & ~NP_SYNCHRONOUS;
		np_syscall4(NP_SYS_RT_SIGPROCMASK, NP_SIG_SETMASK, (u64)&mask, 0, 8);
	}
	/* The word before the context is the address to which the handler returns. */
	if (flags & NP_SA_RESTORER && !np_shadow_stack())
		np_store(((u64 *)ucontext)[-1], restorer);
	np_enter_handler(signal, information, ucontext, handler);
}
