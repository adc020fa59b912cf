/* Runs before some of the program's system calls: rt_sigprocmask, rt_sigaction and rt_sigpending;
 * those that wait for signals or under their own mask (waits.c); clone; and those whose number only
 * the program knows. No thread may really block SIGTRAP, SIGILL, SIGSEGV or SIGBUS.
 *
 * The kernel kills a process when an instruction raises a signal that the thread blocks. Our traps and guarded
 * loads raise such signals anywhere, and libraries routinely block all signals, for example while they create a
 * thread. So the four signals are never blocked in the kernel. The masks that the program has set are kept in the
 * thread table. The program gets them when it asks, and the kernel gets them when tracing ends.
 *
 *     mask of a thread            table->blocked, by the slot of the thread
 *     mask of an action           table->action_masks, by the signal
 *     action for one of the four  table->inherited.actions, which np_chain carries out; the kernel's stays ours
 *
 * A call that does not concern the four continues unchanged, at the program's own instruction. That holds for
 * nearly all calls. A signal that is delivered there interrupts the program at a place that its unwinding tables
 * describe.
 *
 * A bad pointer must lead to EFAULT for the program, and not to a signal. So the agent tests a pointer by a call
 * whose other arguments are invalid: the kernel reads through the pointer first. Such a call changes nothing, and
 * its error shows whether the pointer is bad.
 *
 * Calls that wait under their own mask (rt_sigsuspend, ppoll, ...) are made by the program, which sleeps in them.
 * The handler that ends the wait runs under that mask. So the register with the mask's address gets the address of
 * a copy without the four. The kernel reads the copy when the call begins. It reads the copy again when the call
 * is repeated after a stop, which only happens if no handler has run. A handler that runs before the call may make
 * such calls itself; these use the next copies.
 *
 * A child of fork finds a wiped table. A followed child takes the table (follow.c), and is served like the traced
 * process. Otherwise its calls are still changed, but nothing is recorded. A child of vfork (posix_spawn) has its
 * parent's memory, but other masks and actions. Only its process number differs, so that is compared before anything
 * is recorded.
 *
 * A signal that is sent while the program believes it blocked is held (waits.c), and is delivered
 * here when the program unblocks it.
 *
 * What a program can notice: in a handler, and in the masks of a signal frame, the four are not
 * blocked; a mask that a handler leaves for sigreturn stays recorded. */
#include "chain.h"
#include "exec.h"
#include "guard.h"
#include "handlers.h"
#include "held.h"
#include "made.h"
#include "sandbox.h"
#include "shims.h"
#include "syscalls.h"
#include "threads.h"
#include "waits.h"

#define NP_SA_ONSTACK 0x08000000UL
#define NP_CLONE_VM 0x00000100UL
#define NP_CLONE_VFORK 0x00004000UL
#define NP_CLONE_THREAD 0x00010000UL
#define NP_CLONE_SETTLS 0x00080000UL
/* struct clone_args: the offset of `tls`, after `flags` and others. */
#define NP_CLONE3_TLS 56

/* The place where the calling thread's own mask is recorded; 0: there is none. */
static u16 *blocked_of_thread(struct np_thread_table *table)
{
	u32 own = np_own_index(table);
	return own == NP_TABLE_SLOTS ? 0 : &table->blocked[own];
}

u64 np_shim_sigprocmask(struct np_registers *registers)
{
	u32 how = (u32)registers->rdi;
	u64 set_address = registers->rsi, old_address = registers->rdx, set = 0;
	if (registers->r10 != 8)
		return 0;
	if (set_address) {
		if (how > NP_SIG_SETMASK || !np_is_mask(set_address))
			return 0;
		set = *(volatile u64 *)set_address;
	}
	struct np_thread_table *table = np_table_of_process();
	u16 *blocked = blocked_of_thread(table);
	u64 before = blocked ? *blocked : 0, after = before, ours = set & NP_SYNCHRONOUS;
	if (set_address)
		after = how == NP_SIG_BLOCK ? before | ours : how == NP_SIG_UNBLOCK ? before & ~ours : ours;
	if (!before && !after)
		return 0;
	/* Before the call: a handler that runs at the call's end must already see the new mask. From here on, the call
	 * can only fail because of `old_address`, and even then the kernel has changed the mask. */
	int changes = after != before && blocked && np_is_traced(table);
	if (changes)
		np_record_blocked(table, blocked, (u16)after);
	set &= ~NP_SYNCHRONOUS;
	i64 result = np_syscall4(NP_SYS_RT_SIGPROCMASK, how, set_address ? (u64)&set : 0, old_address, 8);
	if (result == 0 && old_address)
		*(volatile u64 *)old_address |= before;
	if (changes && before & ~after && np_may_call())
		np_held_let_go(table, (u32)np_syscall4(NP_SYS_GETTID, 0, 0, 0, 0), before & ~after);
	registers->rax = (u64)result;
	return 1;
}

/* Held signals are pending, too. */
static u64 shim_sigpending(struct np_registers *registers)
{
	struct np_thread_table *table = np_table_of_process();
	u16 *blocked = table && np_load_once(table->held_count) && np_may_call() && registers->rsi == 8 ?
		       blocked_of_thread(table) : 0;
	if (!blocked || !np_is_traced(table))
		return 0;
	u64 held = np_held_for(table, (u32)np_syscall4(NP_SYS_GETTID, 0, 0, 0, 0)) & *blocked;
	i64 result = np_syscall4(NP_SYS_RT_SIGPENDING, registers->rdi, 8, 0, 0);
	if (result == 0)
		*(volatile u64 *)registers->rdi |= held;
	registers->rax = (u64)result;
	return 1;
}

/* A new thread blocks the signals that its creator blocks. It has no slot yet, but the key by which it will find a
 * slot is known. The thread that had this key before has ended. A process that keeps its creator's memory and thread
 * pointer, and runs beside it, must not find its context. */
static void shim_clone(const struct np_registers *registers)
{
	const u64 thread_with_pointer = NP_CLONE_THREAD | NP_CLONE_SETTLS;
	struct np_thread_table *table = np_table_of_process(), *traced = np_is_traced(table) ? table : 0;
	u64 flags = registers->rdi, key = registers->r8;
	if (!traced || np_header.thread_key_mode == NP_KEY_ASKED)
		return;
	if ((u32)registers->rax == NP_SYS_CLONE3 &&
	    (!np_guarded_u64(registers->rdi, &flags) || !np_guarded_u64(registers->rdi + NP_CLONE3_TLS, &key)))
		return;
	/* Not for vfork, which lets the thread wait until the child has its own memory, and not for a thread: Go's set their
	 * thread pointers themselves, before anything else. */
	if ((flags & (NP_CLONE_VM | NP_CLONE_VFORK | NP_CLONE_SETTLS | NP_CLONE_THREAD)) == NP_CLONE_VM)
		np_note_shared_pointer(traced);
	if ((flags & thread_with_pointer) != thread_with_pointer || key <= NP_SLOT_ENDED)
		return;
	struct np_thread_slot *open, *slot = np_find_slot(traced, key, &open);
	if (slot)
		np_forget_thread((struct np_context *)np_load_once(slot->context));
	u16 *blocked = blocked_of_thread(traced);
	if (!blocked)
		return;
	if (!slot && *blocked)
		slot = np_own_slot(traced, key);
	if (slot && &traced->blocked[slot - traced->slots] != blocked) {
		np_record_blocked(traced, &traced->blocked[slot - traced->slots], *blocked);
		np_store(traced->waits[slot - traced->slots].state, NP_WAIT_NONE);
	}
}

static i64 raw_action(u64 signal, const struct np_sigaction *new, u64 old_address)
{
	return np_syscall4(NP_SYS_RT_SIGACTION, signal, (u64)new, old_address, 8);
}

static void copy_action(volatile struct np_sigaction *to, const volatile struct np_sigaction *from)
{
	u64 handler = from->handler;
	to->flags = from->flags;
	to->restorer = from->restorer;
	to->mask = from->mask;
	to->handler = handler; /* last: np_chain may be reading */
}

/* The action for a signal whose kernel action is ours. */
static u64 own_action(struct np_registers *registers, enum np_signal_slot slot, const struct np_sigaction *new)
{
	struct np_control *control = (struct np_control *)np_header.control;
	u64 signal = (u32)registers->rdi, old_address = registers->rdx;
	struct np_sigaction recorded, kernels;
	if (raw_action(signal, 0, (u64)&kernels) != 0 || kernels.handler != control->installed[slot].handler)
		return 0;
	copy_action(&recorded, &np_program_actions()[slot]);
	const struct np_thread_table *own = (const struct np_thread_table *)np_header.table;
	struct np_thread_table *table = np_table_of_process();
	/* A signal handler may have interrupted the taking of a child's table. Handlers of D will run in this child. */
	int taking = !table && np_follows() && np_load_once(own->magic) == NP_TAKING;
	int traced = taking || np_is_traced(table);
	/* No D handler runs in a child, so no guarded load faults there; but its text still has traps. */
	int replaces = new && !traced && (slot == NP_SLOT_SEGV || slot == NP_SLOT_BUS || slot == NP_SLOT_FPE);
	/* A bad `old_address` is reported, but the action is set nevertheless. */
	i64 result = raw_action(signal, replaces ? new : 0, old_address);
	if (result == 0 && old_address)
		copy_action((volatile struct np_sigaction *)old_address, &recorded);
	if (new && traced) {
		copy_action(&np_program_actions()[slot], new);
		/* The tracer restores the actions that are recorded here. */
		if (!taking && !own->began)
			copy_action(&control->actions[slot], new);
		if (new->handler == NP_SIG_IGN && table)
			np_held_drop(table, np_bit(signal));
		/* The signal frame lies on the stack that the program's action chooses. If the program
		 * has no handler, it lies on the alternate stack, if there is one. */
		u64 stack = new->handler > 1 ? new->flags & NP_SA_ONSTACK : NP_SA_ONSTACK;
		if ((kernels.flags & NP_SA_ONSTACK) != stack) {
			kernels.flags ^= NP_SA_ONSTACK;
			raw_action(signal, &kernels, 0);
		}
	}
	registers->rax = (u64)result;
	return 1;
}

u64 np_shim_sigaction(struct np_registers *registers)
{
	const struct np_control *control = (const struct np_control *)np_header.control;
	u64 signal = (u32)registers->rdi, new_address = registers->rsi, old_address = registers->rdx;
	struct np_sigaction new = { 0, 0, 0, 0 };
	if (registers->r10 != 8 || signal - 1 >= NP_SIGNALS)
		return 0;
	if (new_address) {
		/* Signal 0 has no action. The kernel finds this out after it has read the new action. */
		if (raw_action(0, (const struct np_sigaction *)new_address, 0) == -NP_EFAULT)
			return 0;
		copy_action(&new, (const volatile struct np_sigaction *)new_address);
	}
	if (new_address)
		np_note_handler(np_table_of_process(), signal, &new);
	int slot = np_slot_of(signal);
	if (slot >= 0 && control->action_mask & 1u << slot)
		return own_action(registers, (enum np_signal_slot)slot, new_address ? &new : 0);
	struct np_thread_table *table = np_table_of_process();
	u64 before = table ? table->action_masks[signal - 1] : 0, after = new.mask & NP_SYNCHRONOUS;
	if (!before && !after)
		return 0;
	new.mask &= ~NP_SYNCHRONOUS;
	i64 result = raw_action(signal, new_address ? &new : 0, old_address);
	if (new_address && result != -NP_EINVAL && np_is_traced(table))
		table->action_masks[signal - 1] = (u16)after;
	if (result == 0 && old_address)
		((volatile struct np_sigaction *)old_address)->mask |= before;
	registers->rax = (u64)result;
	return 1;
}

NP_INLINE void note_filter(int is_strict)
{
	if (is_strict)
		np_note_no_clock();
	else
		np_note_sandbox();
}

/* np_shim_syscall, without the step after the last look (waits.c). */
struct np_shimmed np_shim(struct np_registers *registers, u64 lends, u64 syscall);
__attribute__((used)) struct np_shimmed np_shim(struct np_registers *registers, u64 lends, u64 syscall)
{
	if (lends & NP_SHIM_INTERRUPT)
		return (struct np_shimmed){ np_shim_interrupt(registers), 0 };
	u32 number = (u32)registers->rax; /* the kernel uses only 32 bits of rax */
	struct np_shimmed shimmed = np_shim_wait(registers, lends, syscall);
	switch (number) {
	case NP_SYS_RT_SIGACTION:
		shimmed.made = np_shim_sigaction(registers);
		break;
	case NP_SYS_RT_SIGPROCMASK:
		shimmed.made = np_shim_sigprocmask(registers);
		break;
	case NP_SYS_RT_SIGPENDING:
		shimmed.made = shim_sigpending(registers);
		break;
	case NP_SYS_CLONE:
	case NP_SYS_CLONE3:
		shim_clone(registers);
		break;
	case NP_SYS_MPROTECT:
	case NP_SYS_PKEY_MPROTECT:
		shimmed.made = np_shim_protect(registers);
		break;
	case NP_SYS_EXECVE:
	case NP_SYS_EXECVEAT:
		shimmed.made = np_shim_exec(registers);
		break;
	case NP_SYS_PRCTL:
		if ((u32)registers->rdi == NP_PR_SET_TSC && (u32)registers->rsi == NP_PR_TSC_SIGSEGV)
			np_note_no_clock();
		if ((u32)registers->rdi == NP_PR_SET_SECCOMP)
			note_filter((u32)registers->rsi == NP_SECCOMP_MODE_STRICT);
		if ((u32)registers->rdi == NP_PR_SET_SYSCALL_USER_DISPATCH && registers->rsi)
			np_shim_dispatch(registers, syscall);
		break;
	case NP_SYS_SECCOMP:
		note_filter((u32)registers->rdi == NP_SECCOMP_SET_MODE_STRICT);
		break;
	}
	return shimmed;
}
