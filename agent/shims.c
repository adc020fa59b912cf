/* In front of the program's system calls: of rt_sigprocmask and rt_sigaction, of those that wait under a mask of their own,
 * and of those whose number only the program knows. Nothing may block SIGTRAP, SIGILL, SIGSEGV or SIGBUS.
 *
 * The kernel kills a process that blocks a signal which one of its instructions raises. Our traps and guarded loads raise
 * such signals anywhere, and libraries block all signals as a matter of course, around the creation of a thread for one.
 * So the kernel is told of these four that they are not blocked; what the program believes is kept in the thread table,
 * told to the program when it asks, and told to the kernel when tracing ends.
 *
 *     mask of a thread            table->blocked, by the slot of the thread
 *     mask of an action           table->action_masks, by the signal
 *     action for one of the four  control->actions, which np_chain carries out; the kernel's stays ours
 *
 * A call that is not about the four goes on as it was, at the program's own instruction: nearly all do, and a signal that
 * is delivered there finds the program where its unwinding tables describe it.
 *
 * A bad pointer must end in the program's EFAULT, not in a signal. The kernel itself is asked: it looks at the pointer
 * before it finds that the rest of the call is invalid, so such a call changes nothing and says which it is.
 *
 * Calls that wait under a mask of their own (rt_sigsuspend, ppoll, ...) are made by the program, which sleeps in them; the
 * handler that ends the wait runs under that mask. So the register that says where the mask is gets the address of a copy
 * without the four. The kernel reads it when the call begins, and again when it is made again after a stop, which it is
 * only while no handler has run. A handler that comes in front of the call may make such calls of its own: these take
 * the next copies.
 *
 * A child of fork finds a wiped table: its calls are filtered, nothing is recorded. A child of vfork (posix_spawn) has
 * the same memory as its parent, but other masks and actions: only its number tells, so before anything is recorded that
 * is compared.
 *
 * What a program can see: while it believes the four blocked, one that is sent to it is delivered; in a handler, and in
 * the masks of a signal frame, they are not blocked; a mask that a handler leaves to sigreturn stays recorded.
 */
#include "chain.h"
#include "guard.h"
#include "sandbox.h"
#include "syscalls.h"
#include "threads.h"

enum { NP_SIG_BLOCK = 0, NP_SIG_UNBLOCK = 1, NP_SIG_SETMASK = 2 };
enum { NP_SIGILL = 4, NP_SIGTRAP = 5, NP_SIGBUS = 7, NP_SIGFPE = 8, NP_SIGSEGV = 11, NP_SIGNALS = 64 };
enum { NP_EFAULT = 14, NP_EINVAL = 22 };
#define NP_SA_ONSTACK 0x08000000UL

NP_INLINE struct np_thread_table *table_of_process(void)
{
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	return np_load_once(table->magic) == NP_MAGIC ? table : 0;
}

/* Whether this is the traced process itself, not a child that shares its memory. */
static int is_traced(const struct np_thread_table *table)
{
	const struct np_control *control = (const struct np_control *)np_header.control;
	return table && (!np_may_call() || (u32)np_syscall4(NP_SYS_GETPID, 0, 0, 0, 0) == control->target_pid);
}

/* Where the calling thread's belief is kept; 0: nowhere. */
static u16 *blocked_of_thread(struct np_thread_table *table)
{
	u64 key = table ? np_thread_key() : 0;
	struct np_thread_slot *slot = key ? np_own_slot(table, key) : 0;
	return slot ? &table->blocked[slot - table->slots] : 0;
}

/* Whether the kernel can read the 8 bytes of a mask, by a change in a way that does not exist. */
static int is_mask(u64 address)
{
	return np_syscall4(NP_SYS_RT_SIGPROCMASK, (u64)-1, address, 0, 8) != -NP_EFAULT;
}

static u64 shim_sigprocmask(struct np_registers *registers)
{
	u32 how = (u32)registers->rdi;
	u64 set_address = registers->rsi, old_address = registers->rdx, set = 0;
	if (registers->r10 != 8)
		return 0;
	if (set_address) {
		if (how > NP_SIG_SETMASK || !is_mask(set_address))
			return 0;
		set = *(volatile u64 *)set_address;
	}
	struct np_thread_table *table = table_of_process();
	u16 *blocked = blocked_of_thread(table);
	u64 before = blocked ? *blocked : 0, after = before, ours = set & NP_SYNCHRONOUS;
	if (set_address)
		after = how == NP_SIG_BLOCK ? before | ours : how == NP_SIG_UNBLOCK ? before & ~ours : ours;
	if (!before && !after)
		return 0;
	/* Before the call: a handler that runs at its end already sees what holds then. The call can no more fail but by
	 * `old_address`, and then the kernel has changed the mask all the same. */
	if (after != before && blocked && is_traced(table))
		*blocked = (u16)after;
	set &= ~NP_SYNCHRONOUS;
	i64 result = np_syscall4(NP_SYS_RT_SIGPROCMASK, how, set_address ? (u64)&set : 0, old_address, 8);
	if (result == 0 && old_address)
		*(volatile u64 *)old_address |= before;
	registers->rax = (u64)result;
	return 1;
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
	copy_action(&recorded, &control->actions[slot]);
	int traced = is_traced(table_of_process());
	/* No handler of ours runs in a child, so nothing of ours faults there; but its text still traps. */
	int replaces = new && !traced && (slot == NP_SLOT_SEGV || slot == NP_SLOT_BUS || slot == NP_SLOT_FPE);
	/* A bad `old_address` is reported, but the action is set all the same. */
	i64 result = raw_action(signal, replaces ? new : 0, old_address);
	if (result == 0 && old_address)
		copy_action((volatile struct np_sigaction *)old_address, &recorded);
	if (new && traced) {
		copy_action(&control->actions[slot], new);
		/* The frame lies where the program wants it; where it has no handler, on whatever stack there is. */
		u64 stack = new->handler > 1 ? new->flags & NP_SA_ONSTACK : NP_SA_ONSTACK;
		if ((kernels.flags & NP_SA_ONSTACK) != stack) {
			kernels.flags ^= NP_SA_ONSTACK;
			raw_action(signal, &kernels, 0);
		}
	}
	registers->rax = (u64)result;
	return 1;
}

NP_INLINE int slot_of(u64 signal)
{
	return signal == NP_SIGTRAP ? NP_SLOT_TRAP : signal == NP_SIGSEGV ? NP_SLOT_SEGV :
	       signal == NP_SIGBUS ? NP_SLOT_BUS : signal == NP_SIGILL ? NP_SLOT_ILL :
	       signal == NP_SIGFPE ? NP_SLOT_FPE : -1;
}

static u64 shim_sigaction(struct np_registers *registers)
{
	const struct np_control *control = (const struct np_control *)np_header.control;
	u64 signal = (u32)registers->rdi, new_address = registers->rsi, old_address = registers->rdx;
	struct np_sigaction new = { 0, 0, 0, 0 };
	if (registers->r10 != 8 || signal - 1 >= NP_SIGNALS)
		return 0;
	if (new_address) {
		/* Signal 0 has no action, which the kernel finds after it has read what was to be one. */
		if (raw_action(0, (const struct np_sigaction *)new_address, 0) == -NP_EFAULT)
			return 0;
		copy_action(&new, (const volatile struct np_sigaction *)new_address);
	}
	int slot = slot_of(signal);
	if (slot >= 0 && control->action_mask & 1u << slot)
		return own_action(registers, (enum np_signal_slot)slot, new_address ? &new : 0);
	struct np_thread_table *table = table_of_process();
	u64 before = table ? table->action_masks[signal - 1] : 0, after = new.mask & NP_SYNCHRONOUS;
	if (!before && !after)
		return 0;
	new.mask &= ~NP_SYNCHRONOUS;
	i64 result = raw_action(signal, new_address ? &new : 0, old_address);
	if (new_address && result != -NP_EINVAL && is_traced(table))
		table->action_masks[signal - 1] = (u16)after;
	if (result == 0 && old_address)
		((volatile struct np_sigaction *)old_address)->mask |= before;
	registers->rax = (u64)result;
	return 1;
}

/* One word of the program's; a bad pointer is the kernel's to report. */
static int read_word(u64 address, u64 *value)
{
	if (table_of_process())
		return np_guarded_u64(address, value);
	if (!np_may_call() || !is_mask(address)) /* a child's faults are its own */
		return 0;
	*value = *(volatile u64 *)address;
	return 1;
}

/* The copy of a mask that is lent for what a register of the program's holds; 0: no room. */
static struct np_lent_mask *lend(u64 original, u64 mask)
{
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	u64 key = np_thread_key();
	struct np_thread_slot *slot = key ? np_own_slot(table, key) : 0;
	if (!slot)
		return 0;
	struct np_lent_masks *lent = &table->lent_masks[slot - table->slots];
	for (u32 index = 0; index < NP_LENT_MASKS; index++) {
		if (lent->masks[index].original == original && lent->masks[index].mask == mask)
			return &lent->masks[index];
	}
	u64 next = np_load_once(lent->next);
	np_store(lent->next, next + 1);
	struct np_lent_mask *taken = &lent->masks[next % NP_LENT_MASKS];
	np_store(taken->original, original);
	np_store(taken->mask, mask);
	np_store(taken->pair, (u64)&taken->mask);
	np_store(taken->pair_bytes, 8);
	return taken;
}

/* A call that waits under the mask at the address in a register; `paired`: at the address at that address. */
static void shim_wait(u64 *where, int paired, u64 bytes)
{
	u64 at = *where, mask;
	if (paired && (!at || !read_word(at + 8, &bytes) || !read_word(at, &at)))
		return;
	if (bytes != 8 || !at || !read_word(at, &mask) || !(mask & NP_SYNCHRONOUS))
		return;
	struct np_lent_mask *lent = lend(*where, mask & ~NP_SYNCHRONOUS);
	if (lent)
		*where = paired ? (u64)&lent->pair : (u64)&lent->mask;
}

static void shim_waits(struct np_registers *registers)
{
	switch ((u32)registers->rax) {
	case NP_SYS_RT_SIGSUSPEND:
		shim_wait(&registers->rdi, 0, registers->rsi);
		break;
	case NP_SYS_PPOLL:
		shim_wait(&registers->r10, 0, registers->r8);
		break;
	case NP_SYS_EPOLL_PWAIT:
	case NP_SYS_EPOLL_PWAIT2:
		shim_wait(&registers->r8, 0, registers->r9);
		break;
	case NP_SYS_PSELECT6:
	case NP_SYS_IO_PGETEVENTS:
		shim_wait(&registers->r9, 1, 0);
		break;
	}
}

NP_SIGNAL u64 np_shim_syscall(struct np_registers *registers, u64 lends)
{
	/* The kernel looks at 32 bits of it. */
	switch ((u32)registers->rax) {
	case NP_SYS_RT_SIGACTION:
		return shim_sigaction(registers);
	case NP_SYS_RT_SIGPROCMASK:
		return shim_sigprocmask(registers);
	case NP_SYS_PRCTL:
		if ((u32)registers->rdi == NP_PR_SET_SECCOMP)
			np_note_sandbox();
		return 0;
	case NP_SYS_SECCOMP:
		np_note_sandbox();
		return 0;
	}
	if (lends)
		shim_waits(registers);
	return 0;
}
