/* Signals that are sent to a program while it blocks them, and calls that wait for them.
 *
 * In the kernel, no thread blocks the four signals that our code raises (shims.c). So if another process sends one
 * of them, it arrives at once, in our handler, whatever the program blocks. np_hold then does what the kernel
 * would have done:
 *
 *     this thread does not block the signal    the program's action runs (chain.c)
 *     this thread waits for the signal         the wait ends with the signal
 *     another thread waits for the signal      that thread gets the signal, if it was sent to the process
 *     else                                     the signal is held (held.c): sigpending shows it, the next wait takes
 *                                              it, and it is sent again when the program unblocks it
 *
 * The program itself makes a call that waits, and sleeps in the kernel. The four wake it like any signal. But a
 * signal may arrive after the shim has looked at the held signals, and before the `syscall`. Then our handler
 * would run, and the thread would go to sleep without the signal. So the shim writes the coming call into the
 * thread's struct np_wait, and the handler looks where the thread is:
 *
 *     np_shim_syscall:      call np_shim       state = LOOKING; looks at what is held
 *                                              the handler holds it and sets `disturbed`
 *       np_leaving:         state = BEGUN      .
 *                           disturbed? again   .
 *                           ret                .  the handler answers in the kernel's place: all registers as in front
 *     the detour:           registers popped   .  of the call, from struct np_registers or, when all are popped, as
 *                                                 they
 *                           jmp                .  are; rip after the `syscall`, and the result in rax
 *     the program:          syscall            .
 *                             asleep           the kernel ends the wait, and for the four the result is its own
 *                           (after it)         rax is EINTR: of one that stays blocked it must not end; the call is
 *                                              made again
 *
 * If two threads did not see each other's writes, a signal would be lost. So a thread that waits first announces
 * that, and then looks at the held signals. A thread that holds a signal first stores it, and then looks for a
 * waiter.
 *
 * If a wait ends in another way, its struct np_wait stays unchanged. Because of that, a signal may be sent on to a
 * thread that no longer waits. That thread clears the struct, and the signal is held or sent on like any other.
 *
 * What a program can notice: signalfd does not report the four. A call that the kernel does not
 * restart after a handler ends with EINTR although the signal is blocked (but the waits here are
 * restarted, with their whole time). A signal for the process that its receiver blocks waits until
 * some thread takes or unblocks it, even if another thread has it unblocked. Where system calls are
 * forbidden (seccomp) nothing is held. Held signals are lost at execve. */
#include "waits.h"
#include "guard.h"
#include "held.h"
#include "redirects.h"

/* The size of what a replacement has pushed: struct np_registers, and above it the red zone
 * (crates/patch, replacement). */
#define NP_RED_ZONE 128u
#define NP_SAVED_WORDS ((sizeof(struct np_registers) + NP_RED_ZONE) / sizeof(u64))
/* The largest number of waiters that are tried for one signal. The next waiter is tried only if the last one was
 * gone. */
#define NP_WAITERS_MAX 8u
enum { NP_WAIT_STATE_OFFSET = 16, NP_WAIT_DISTURBED_OFFSET = 32 };
_Static_assert(__builtin_offsetof(struct np_wait, state) == NP_WAIT_STATE_OFFSET, "np_shim_syscall");
_Static_assert(__builtin_offsetof(struct np_wait, disturbed) == NP_WAIT_DISTURBED_OFFSET, "np_shim_syscall");
_Static_assert(NP_WAIT_BEGUN == 2, "np_shim_syscall");

/* The code from the shim's last look on. */
extern const u8 np_leaving[], np_leaving_end[];
__asm__(".text\n"
	".globl np_shim_syscall\n"
	".type np_shim_syscall, @function\n"
	"np_shim_syscall:\n"
	"	pushq %rdi\n"
	"	pushq %rsi\n"
	"	pushq %rdx\n"
	"1:	movq 16(%rsp), %rdi\n"
	"	movq 8(%rsp), %rsi\n"
	"	movq (%rsp), %rdx\n"
	"	call np_shim\n"
	".globl np_leaving\n"
	".hidden np_leaving\n"
	"np_leaving:\n"
	"	testq %rdx, %rdx\n"
	"	je 2f\n"
	"	movl $2, 16(%rdx)\n"
	"	cmpl $0, 32(%rdx)\n"
	"	jne 1b\n"
	"2:	addq $24, %rsp\n"
	"	ret\n"
	".globl np_leaving_end\n"
	".hidden np_leaving_end\n"
	"np_leaving_end:\n"
	".size np_shim_syscall, . - np_shim_syscall\n");

static u32 own_number(void)
{
	return (u32)np_syscall4(NP_SYS_GETTID, 0, 0, 0, 0);
}

/* ---- in front of the call ------------------------------------------------------------------------------------ */

/* One word of the program; the kernel reports a bad pointer. */
static int read_word(u64 address, u64 *value)
{
	if (np_table_of_process())
		return np_guarded_u64(address, value);
	if (!np_may_call() || !np_is_mask(address)) /* a child's faults are its own */
		return 0;
	*value = *(volatile u64 *)address;
	return 1;
}

/* Makes the copy that replaces the mask to which a register of the program points; 0: there is no room. */
static struct np_lent_mask *lend(u64 original, u64 mask)
{
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	u32 own = np_own_index(table);
	if (own == NP_TABLE_SLOTS)
		return 0;
	struct np_lent_masks *lent = &table->lent_masks[own];
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

/* The wait entry of the calling thread; 0: the thread has none, or signals cannot be held. */
static struct np_wait *own_wait(struct np_thread_table *table)
{
	u32 own = table && np_may_call() && np_is_traced(table) ? np_own_index(table) : NP_TABLE_SLOTS;
	return own == NP_TABLE_SLOTS ? 0 : &table->waits[own];
}

/* Writes a held signal to the place that a wait names, and yields the result that the kernel would yield. */
static i64 hand_over(i32 signal, const u64 *information, u64 address)
{
	for (u32 word = 0; address && word < NP_SIGINFO_WORDS; word++) {
		if (!np_guarded_store_u64(address + word * sizeof(u64), information[word]))
			return -NP_EFAULT;
	}
	return signal;
}

/* Notes that the thread is about to wait. */
static struct np_shimmed begin(struct np_registers *registers, u64 syscall, u64 takes, u64 blocked)
{
	struct np_thread_table *table = np_table_of_process();
	struct np_wait *wait = own_wait(table);
	if (!wait)
		return (struct np_shimmed){ 0, 0 };
	u64 information[NP_SIGINFO_WORDS];
	wait->syscall = syscall;
	wait->registers = (u64)registers;
	wait->thread = own_number();
	wait->number = (u32)registers->rax;
	wait->takes = (u16)takes;
	wait->blocked = (u16)blocked;
	np_store(wait->disturbed, 0);
	np_store(table->waited, 1);
	__atomic_store_n(&wait->state, NP_WAIT_LOOKING, __ATOMIC_SEQ_CST);
	if (wait->number == NP_SYS_RT_SIGTIMEDWAIT) {
		i32 signal = np_held_take(table, wait->thread, takes, information);
		if (!signal)
			return (struct np_shimmed){ 0, wait };
		np_store(wait->state, NP_WAIT_NONE);
		registers->rax = (u64)hand_over(signal, information, registers->rsi);
	} else {
		if (!(np_held_for(table, wait->thread) & takes))
			return (struct np_shimmed){ 0, wait };
		/* The program's handlers for these signals run at this point. */
		np_store(wait->state, NP_WAIT_LETTING_GO);
		np_held_let_go(table, wait->thread, takes);
		np_store(wait->state, NP_WAIT_NONE);
		registers->rax = (u64)-NP_EINTR;
	}
	return (struct np_shimmed){ 1, 0 };
}

/* A call that waits under the mask whose address is in a register; `paired`: the register has the address of a
 * pair that begins with the mask's address. */
static struct np_shimmed under_mask(struct np_registers *registers, u64 lends, u64 syscall, u64 *where, int paired,
                                    u64 bytes)
{
	struct np_thread_table *table = np_table_of_process();
	u64 at = *where, mask;
	if (paired && (!at || !read_word(at + 8, &bytes) || !read_word(at, &at)))
		return (struct np_shimmed){ 0, 0 };
	if (bytes != 8 || !at || !read_word(at, &mask))
		return (struct np_shimmed){ 0, 0 };
	u64 blocked = mask & NP_SYNCHRONOUS;
	u32 own = table ? np_own_index(table) : NP_TABLE_SLOTS;
	if (!blocked && (own == NP_TABLE_SLOTS || !table->blocked[own]))
		return (struct np_shimmed){ 0, 0 };
	struct np_lent_mask *lent = blocked && lends ? lend(*where, mask & ~NP_SYNCHRONOUS) : 0;
	if (lent)
		*where = paired ? (u64)&lent->pair : (u64)&lent->mask;
	return begin(registers, syscall, ~blocked & NP_SYNCHRONOUS, blocked);
}

/* A call that takes signals. */
static struct np_shimmed for_signals(struct np_registers *registers, u64 syscall)
{
	struct np_thread_table *table = np_table_of_process();
	u64 set, seconds, nanoseconds;
	/* If the call has an error, the kernel reports it before it takes any signal. */
	if (!table || registers->r10 != 8 || !read_word(registers->rdi, &set) || !(set & NP_SYNCHRONOUS))
		return (struct np_shimmed){ 0, 0 };
	if (registers->rdx && (!read_word(registers->rdx, &seconds) || !read_word(registers->rdx + 8, &nanoseconds) ||
	                       (i64)seconds < 0 || nanoseconds >= 1000000000))
		return (struct np_shimmed){ 0, 0 };
	u32 own = np_own_index(table);
	return begin(registers, syscall, set & NP_SYNCHRONOUS, own == NP_TABLE_SLOTS ? 0 : table->blocked[own]);
}

struct np_shimmed np_shim_wait(struct np_registers *registers, u64 lends, u64 syscall)
{
	struct np_thread_table *table = np_table_of_process();
	u32 own = table && np_load_once(table->waited) ? np_own_index(table) : NP_TABLE_SLOTS;
	if (own != NP_TABLE_SLOTS)
		np_store(table->waits[own].state, NP_WAIT_NONE);
	switch ((u32)registers->rax) {
	case NP_SYS_RT_SIGTIMEDWAIT:
		return for_signals(registers, syscall);
	case NP_SYS_RT_SIGSUSPEND:
		return under_mask(registers, lends, syscall, &registers->rdi, 0, registers->rsi);
	case NP_SYS_PPOLL:
		return under_mask(registers, lends, syscall, &registers->r10, 0, registers->r8);
	case NP_SYS_EPOLL_PWAIT:
	case NP_SYS_EPOLL_PWAIT2:
		return under_mask(registers, lends, syscall, &registers->r8, 0, registers->r9);
	case NP_SYS_PSELECT6:
	case NP_SYS_IO_PGETEVENTS:
		return under_mask(registers, lends, syscall, &registers->r9, 1, 0);
	}
	return (struct np_shimmed){ 0, 0 };
}

/* ---- in the handler ------------------------------------------------------------------------------------------ */

enum np_phase {
	PHASE_ELSEWHERE,
	PHASE_LOOKING,          /* the shim will look, or look again */
	PHASE_LEAVING,          /* from the last look up to the `syscall` */
	PHASE_INTERRUPTED,      /* the call has ended with EINTR, and the program has not executed anything since */
};

static enum np_phase phase_of(const struct np_wait *wait, const struct np_ucontext *ucontext)
{
	u64 rip = ucontext->rip, pushed;
	if (wait->state != NP_WAIT_LOOKING && wait->state != NP_WAIT_BEGUN)
		return PHASE_ELSEWHERE;
	if (rip - (u64)np_leaving < (u64)np_leaving_end - (u64)np_leaving || rip == wait->syscall ||
	    (np_original_address(rip, &pushed) == wait->syscall && pushed == NP_SAVED_WORDS))
		return PHASE_LEAVING;
	if (wait->state == NP_WAIT_LOOKING)
		return PHASE_LOOKING;
	int is_over = rip == wait->syscall + 2 && (i64)ucontext->rax == -NP_EINTR;
	return is_over ? PHASE_INTERRUPTED : PHASE_ELSEWHERE;
}

/* Moves the thread to after the `syscall`, as the kernel does. */
static void leave_call(const struct np_wait *wait, struct np_ucontext *ucontext)
{
	const struct np_registers *saved = (const struct np_registers *)wait->registers;
	enum { LOW_FLAGS = 0xd5, OVERFLOW_BIT = 11 };
	if (ucontext->rsp <= (u64)(saved + 1)) {
		u64 low = saved->flags >> 8 & LOW_FLAGS, overflow = (saved->flags & 1) << OVERFLOW_BIT;
		ucontext->flags = (ucontext->flags & ~(u64)(LOW_FLAGS | 1u << OVERFLOW_BIT)) | low | overflow;
		ucontext->rbx = saved->rbx;
		ucontext->rdx = saved->rdx;
		ucontext->rsi = saved->rsi;
		ucontext->rdi = saved->rdi;
		ucontext->rbp = saved->rbp;
		ucontext->r8 = saved->r8;
		ucontext->r9 = saved->r9;
		ucontext->r10 = saved->r10;
		ucontext->r12 = saved->r12;
		ucontext->r13 = saved->r13;
		ucontext->r14 = saved->r14;
		ucontext->r15 = saved->r15;
	}
	ucontext->rsp = (u64)(saved + 1) + NP_RED_ZONE;
	ucontext->rip = wait->syscall + 2;
	ucontext->rcx = ucontext->rip;
	ucontext->r11 = ucontext->flags;
}

/* The wait of another thread that waits for a signal; 0: no thread does. */
static struct np_wait *waiter(struct np_thread_table *table, const struct np_wait *own, u64 bit)
{
	if (!np_load_once(table->waited))
		return 0;
	for (struct np_wait *wait = table->waits; wait < table->waits + NP_TABLE_SLOTS; wait++) {
		u32 state = np_load_once(wait->state);
		if ((state == NP_WAIT_LOOKING || state == NP_WAIT_BEGUN) && wait != own && wait->takes & bit)
			return wait;
	}
	return 0;
}

static void hold(struct np_thread_table *table, const struct np_wait *own, i32 signal, const struct np_siginfo *information)
{
	u64 copy[NP_SIGINFO_WORDS];
	u32 left, thread = information->code == NP_SI_TKILL ? own_number() : 0;
	for (u32 attempt = 0; attempt < NP_WAITERS_MAX; attempt++) {
		struct np_held *held = np_held_put(table, thread, signal, information, &left);
		struct np_wait *other = held && !thread ? waiter(table, own, np_bit((u64)signal)) : 0;
		if (!other || !np_held_withdraw(table, held, left))
			return;
		for (u32 word = 0; word < NP_SIGINFO_WORDS; word++)
			copy[word] = ((const u64 *)information)[word];
		if (np_send(other->thread, signal, copy))
			return;
		np_store(other->state, NP_WAIT_NONE);
	}
	np_held_put(table, thread, signal, information, &left);
}

int np_hold(i32 signal, const struct np_siginfo *information, struct np_ucontext *ucontext)
{
	struct np_thread_table *table = np_table_of_process();
	u64 open, bit = np_bit((u64)signal) & NP_SYNCHRONOUS;
	struct np_wait *wait = bit ? own_wait(table) : 0;
	if (!wait)
		return 0;
	enum np_phase phase = phase_of(wait, ucontext);
	u64 blocked = table->blocked[wait - table->waits];
	int takes = (wait->takes & bit) != 0;
	if (wait->state == NP_WAIT_LETTING_GO && takes)
		return 0;
	switch (phase) {
	case PHASE_ELSEWHERE:
		if (wait->state == NP_WAIT_BEGUN)
			np_store(wait->state, NP_WAIT_NONE);
		break;
	case PHASE_LOOKING:
		blocked = takes ? bit : wait->blocked;
		np_store(wait->disturbed, 1);
		break;
	case PHASE_LEAVING:
	case PHASE_INTERRUPTED:
		blocked = wait->blocked;
		if (!takes)
			break;
		np_store(wait->state, NP_WAIT_NONE);
		leave_call(wait, ucontext);
		ucontext->rax = (u64)-NP_EINTR;
		if (wait->number != NP_SYS_RT_SIGTIMEDWAIT)
			return 0;
		/* The four signals are blocked in our handlers. Here they are unblocked, because a bad pointer must lead to
		 * EFAULT for the program. The return from the signal restores the mask. */
		open = NP_SYNCHRONOUS;
		np_syscall4(NP_SYS_RT_SIGPROCMASK, NP_SIG_UNBLOCK, (u64)&open, 0, 8);
		ucontext->rax = (u64)hand_over(signal, (const u64 *)information, ucontext->rsi);
		return 1;
	}
	if (!(blocked & bit))
		return 0;
	hold(table, wait, signal, information);
	if (phase == PHASE_INTERRUPTED) {
		ucontext->rip = wait->syscall;
		ucontext->rax = wait->number;
	}
	return 1;
}
