/* SIGTRAP, SIGILL, SIGSEGV and SIGBUS.
 *
 * A thread that arrives at a boundary of a run, or at a `trap` site, executes int3 or an invalid
 * opcode. The redirect table says where it continues. The lookup reads only the image and the
 * table, which are private memory. So it also works in a forked child, in a thread without a
 * context and while a handler runs. At some trap sites the thread is not redirected: the handler
 * itself fires the probes and executes the instruction (emulate.c), or has it stepped (step.c).
 *
 * A fault at one of the agent's guarded loads resumes at that load's error path. Every other fault
 * is the program's. If a relocated instruction raised it, the program sees the original address. A
 * fault within a detour's own code (there is only one kind: the stack is at its end) keeps its rip,
 * because the thread can only continue there.
 *
 * A trap of ours may lie in a restartable sequence that no section describes. Then the kernel sends the thread to
 * the sequence's abort handler before it delivers the signal. The trap's address is lost, and the thread continues
 * where it is. The tracer removes the trap, because otherwise the sequence would be aborted forever.
 *
 * A signal that was sent, and not raised by an instruction, is the program's. While the program blocks it, the
 * signal is held: waits.c.
 */
#include "emulate.h"
#include "guard.h"
#include "made.h"
#include "waits.h"

/* siginfo.si_code of a SIGTRAP: int1; an instruction was executed with the trap flag set; an int3 was executed.
 * All others (breakpoint registers, perf events) are the program's, or those of a library in it. They leave rip
 * unchanged. It may point to the byte after a trap of ours, if the program has jumped there. */
enum { NP_TRAP_BRKPT = 1, NP_TRAP_TRACE = 2, NP_TRAP_PERF = 6, NP_SI_KERNEL = 0x80 };

/* The address at which a thread continues that has trapped at `from`; 0: there is no trap of ours at `from`. */
static u64 redirect(u64 from)
{
	struct np_redirect found;
	return np_redirect_before(from, &found) && found.from == from ? found.to : 0;
}

/* Lets the thread continue in our code after a fault of our own. The frame then looks like the frame of a redirected
 * trap, so the tracer knows that our handler has done its work (crates/session/src/detach/stacks.rs). */
NP_INLINE void resume(struct np_ucontext *ucontext, u64 at)
{
	ucontext->rip = at;
	ucontext->trap_number = NP_TRAP_NUMBER_INT3;
}

/* Whether a library in the program has handled the signal. */
static int is_dealt_with(i32 signal, struct np_ucontext *ucontext, u64 original, u64 pushed)
{
	np_fault_hook hook = (np_fault_hook)np_load_once(*(u64 *)&np_header.fault_hook);
	return hook && hook(signal, ucontext, original, pushed);
}

/* Whether the thread may have made a step. Once in a million, some virtual machines lose the
 * processor's report of it. The kernel then reports an int1, and the trap flag is still set. */
static int is_step(const struct np_siginfo *information, const struct np_ucontext *ucontext)
{
	return information->code == NP_TRAP_TRACE || (information->code == NP_TRAP_BRKPT && ucontext->flags & NP_FLAG_TRAP);
}

/* Whether this is a perf event of a library in the program, or may be such an event whose report was lost in the
 * same way. */
static int is_own_event(const struct np_siginfo *information, struct np_ucontext *ucontext)
{
	np_event_hook hook = (np_event_hook)np_load_once(*(u64 *)&np_header.event_hook);
	if (!hook || (information->code != NP_TRAP_PERF && information->code != NP_TRAP_BRKPT))
		return 0;
	u64 pushed, original = np_original_address(ucontext->rip, &pushed);
	return hook(information, ucontext, original, pushed);
}

/* A detour loads the thread's key from the place where a C library keeps it. The program may have set a thread
 * pointer to unreadable memory. Then the key is 0, for which there is no slot, and np_enter finds the thread in
 * another way. No other code has these instructions: mov rax, fs:[0] and mov r15, NP_TABLE_FACTOR. */
static int skip_load_of_key(const struct np_siginfo *information, struct np_ucontext *ucontext)
{
	static const u8 load[19] = { 0x64, 0x48, 0x8b, 0x04, 0x25, 0,    0,    0,    0,   0x49,
	                             0xbf, 0x15, 0x7c, 0x4a, 0x7f, 0xb9, 0x79, 0x37, 0x9e };
	enum { LOAD_BYTES = 9 };
	if (information->address == ucontext->rip || !np_is_detours_own(ucontext->rip))
		return 0;
	for (u64 index = 0; index < sizeof(load); index++)
		if (((const volatile u8 *)ucontext->rip)[index] != load[index])
			return 0;
	ucontext->rax = 0;
	resume(ucontext, ucontext->rip + LOAD_BYTES);
	return 1;
}

/* RSEQ_SIG precedes each place to which the kernel sends a thread whose restartable sequence it
 * has aborted. */
#define NP_RSEQ_SIGNATURE 0x53053053u

static int is_aborted_sequence(i32 signal, const struct np_siginfo *information, const struct np_ucontext *ucontext)
{
	u64 before;
	/* For an invalid opcode, the signal contains the address of the opcode, and that differs from the thread's place. */
	if (signal == NP_SIGILL && (information->address == ucontext->rip || !redirect(information->address)))
		return 0;
	if (!np_guarded_u32(ucontext->rip - sizeof(u32), &before) || (u32)before != NP_RSEQ_SIGNATURE)
		return 0;
	const struct np_thread_table *table = (const struct np_thread_table *)np_header.table;
	if (np_load_once(table->magic) == NP_MAGIC) {
		struct np_control *control = (struct np_control *)np_header.control;
		np_store(control->aborted_at, ucontext->rip);
		__atomic_fetch_add(&control->aborted, 1, __ATOMIC_RELEASE);
	}
	return 1;
}

/* A debugger may see a thread trap where it knows of no breakpoint. It may then set the thread back
 * to the int3 and still pass the signal on (gdb does so when it detaches while it passes SIGTRAP).
 * The thread then stands at our int3, and will execute it again. A program's own int3 right before
 * ours leaves its thread at the same place; its byte shows this. */
static int is_set_back(const struct np_ucontext *ucontext)
{
	u64 before;
	if (!redirect(ucontext->rip) || !np_guarded_u32(ucontext->rip - sizeof(u32), &before))
		return 0;
	u8 last = (u8)((u32)before >> 24), second_last = (u8)((u32)before >> 16);
	return last != 0xcc && !(last == 0x03 && second_last == 0xcd); /* int3; int 3 */
}

/* Asks the guests, the other tracers' agents, the latest first. Yields whether one has said yes. */
static int is_a_guests(i32 signal, struct np_siginfo *information, struct np_ucontext *ucontext)
{
	for (u32 index = NP_GUESTS; index-- > 0;) {
		np_guest_hook hook = (np_guest_hook)np_load_once(*(u64 *)&np_header.guests[index]);
		if (hook && hook(signal, information, ucontext))
			return 1;
	}
	return 0;
}

/* SIGTRAP and SIGILL. Yields whether the signal is dealt with. */
static int is_our_trap(i32 signal, struct np_siginfo *information, struct np_ucontext *ucontext)
{
	int ours = signal != NP_SIGTRAP || information->code == NP_SI_KERNEL; /* perhaps: an invalid opcode or an int3 */
	u64 behind = signal == NP_SIGTRAP && ours; /* int3 leaves rip after itself, an invalid opcode does not */
	if (information->code <= 0) {
		np_cancel_step(ucontext);
	} else if (!ours && is_step(information, ucontext) && np_end_step(ucontext)) {
		return 1;
	} else if (!ours && is_own_event(information, ucontext)) {
		return 1;
	} else if (ours || information->code != NP_TRAP_TRACE) {
		/* The library may have changed rip. */
		u64 at = ucontext->rip - behind;
		u64 to = ours ? redirect(at) : 0;
		np_cancel_step(ucontext);
		if (to & NP_REDIRECT_CALL && !(to & NP_REDIRECT_EMULATION)) {
			if (behind && np_continue_call(at, to & ~NP_REDIRECT_CALL, ucontext))
				return 1;
		} else if (to & NP_REDIRECT_EMULATION) {
			int done = np_at_site((const struct np_emulation *)(to & ~NP_REDIRECT_EMULATION), ucontext);
			if (!done || !(ucontext->flags & NP_FLAG_TRAP))
				return 1;
			/* The program steps itself, and has made a step. */
			information->code = NP_TRAP_TRACE;
			information->address = ucontext->rip;
		} else if (to) {
			ucontext->rip = to;
			return 1;
		} else if (ours && is_aborted_sequence(signal, information, ucontext)) {
			/* Nobody knows whose trap it was: every agent notes it. */
			return !np_load_once(*(u64 *)&np_header.host_table);
		} else if (behind && (is_set_back(ucontext) || np_mend_copy(at, ucontext))) {
			return 1;
		}
	}
	return 0;
}

/* SIGSEGV, SIGBUS and SIGFPE. Yields whether the signal is dealt with. */
static int is_our_fault(i32 signal, struct np_siginfo *information, struct np_ucontext *ucontext)
{
	if (information->code <= 0) {
		np_cancel_step(ucontext);
	} else {
		for (const struct np_guard *guard = np_guards_start; guard < np_guards_end; guard++) {
			if ((u64)&guard->instruction + (u64)(i64)guard->instruction == ucontext->rip) {
				resume(ucontext, (u64)&guard->recovery + (u64)(i64)guard->recovery);
				return 1;
			}
		}
		if (signal == NP_SIGSEGV && skip_load_of_key(information, ucontext))
			return 1;
		np_cancel_step(ucontext);
	}
	return 0;
}

/* A signal that no agent has dealt with is the program's. If a relocated instruction has raised it, the program sees
 * the original address. Yields whether that is so. */
static int show_original(i32 signal, struct np_siginfo *information, struct np_ucontext *ucontext)
{
	int is_step_or_event = signal == NP_SIGTRAP && information->code != NP_SI_KERNEL;
	if (information->code <= 0 || (is_step_or_event && information->code == NP_TRAP_TRACE))
		return 0;
	u64 behind = signal == NP_SIGTRAP && !is_step_or_event;
	u64 at = ucontext->rip - behind, pushed, original = np_original_address(at, &pushed);
	/* For these two, the signal's address is that of the instruction. */
	if ((signal == NP_SIGILL || signal == NP_SIGFPE) && information->address == at)
		information->address = original;
	ucontext->rip = original + behind;
	ucontext->rsp += pushed * sizeof(u64);
	return original != at;
}

/* Whether a library in the program has handled a signal that an instruction of the program has raised. */
static int is_a_librarys(i32 signal, const struct np_siginfo *information, struct np_ucontext *ucontext)
{
	if (information->code <= 0 || signal == NP_SIGTRAP)
		return 0;
	u64 pushed, original = np_original_address(ucontext->rip, &pushed);
	return is_dealt_with(signal, ucontext, original, pushed);
}

/* The part of both handlers that is the same. */
static int is_dealt_with_by_agents(i32 signal, struct np_siginfo *information, struct np_ucontext *ucontext)
{
	int traps = signal == NP_SIGTRAP || signal == NP_SIGILL;
	if (is_a_guests(signal, information, ucontext) ||
	    (traps ? is_our_trap(signal, information, ucontext) : is_our_fault(signal, information, ucontext)) ||
	    is_a_librarys(signal, information, ucontext))
		return 1;
	if (!is_a_guests(-signal, information, ucontext))
		show_original(signal, information, ucontext);
	return information->code <= 0 && np_hold(signal, information, ucontext);
}

NP_SIGNAL void np_on_trap(i32 signal, void *siginfo, void *context)
{
	if (!is_dealt_with_by_agents(signal, siginfo, context))
		np_chain(signal == NP_SIGTRAP ? NP_SLOT_TRAP : NP_SLOT_ILL, signal, siginfo, context);
}

NP_SIGNAL void np_on_fault(i32 signal, void *siginfo, void *context)
{
	enum np_signal_slot slot = signal == NP_SIGBUS ? NP_SLOT_BUS : signal == NP_SIGFPE ? NP_SLOT_FPE : NP_SLOT_SEGV;
	if (!is_dealt_with_by_agents(signal, siginfo, context))
		np_chain(slot, signal, siginfo, context);
}

/* A guest's part, which its host calls in the signal's own frame. The host holds signals, and hands them on. */
NP_SIGNAL int np_on_signal_of_host(i32 signal, void *siginfo, void *context)
{
	if (signal < 0)
		return show_original(-signal, siginfo, context);
	int traps = signal == NP_SIGTRAP || signal == NP_SIGILL;
	return traps ? is_our_trap(signal, siginfo, context) : is_our_fault(signal, siginfo, context);
}

/* rt_sigreturn. Unwinders recognise it by these very bytes: mov $15, %rax; syscall. */
__asm__(".text\n"
	".globl np_restorer\n"
	".type np_restorer, @function\n"
	"np_restorer:\n"
	"	movq $15, %rax\n"
	"	syscall\n"
	".size np_restorer, . - np_restorer\n");
