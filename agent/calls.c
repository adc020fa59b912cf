/* System calls: which clauses fire at a `syscall` instruction. Only the thread that executes it knows the call's
 * number.
 *
 *     detour before the call    np_call_begin   remembers {stack pointer, address, number}     where a return is probed
 *                               np_call_entry   each clause: number -> enabling -> handler
 *     the program's `syscall`
 *     detour after the call     np_call_end     finds the number by {stack pointer, address}
 *                               np_call_return  each clause, as above; np_call_count if it only counts
 *
 * The register with the number holds the result after the call, so the thread's context remembers the number. A signal
 * may interrupt the call; the calls of its handler have other stack pointers. A call that never ends (a signal handler
 * left it by siglongjmp) leaves an entry behind, which is taken when no other is free.
 *
 * The child of vfork runs on its parent's stack, with its parent's context. There the result is 0, nothing fires, and
 * the entry stays for the parent. A child of fork that is followed has another context, a new thread has another
 * stack: for them no call has begun, so no return fires either. Where the code shows that the call is fork, clone or
 * clone3, they begin there: a row of the table that no number has.
 *
 * An int 0x80 makes calls by the numbers of 32-bit programs, and so do the tables of its sites number them.
 *
 * An instruction after a call may also be reached by a branch. No call has begun then, and nothing fires. Nothing
 * begins where a branch leads to. */
#include "agent.h"
#include "syscalls.h"
#include "threads.h"

enum { NP_CALL_SIGRETURN = 15, NP_CALL_CLONE = 56, NP_CALL_FORK = 57, NP_CALL_VFORK = 58, NP_CALL_CLONE3 = 435 };
/* By int 0x80. clone3 is the same. */
enum {
	NP_CALL_32_FORK = 2,
	NP_CALL_32_SIGRETURN = 119,
	NP_CALL_32_CLONE = 120,
	NP_CALL_32_RT_SIGRETURN = 173,
	NP_CALL_32_VFORK = 190
};

NP_INLINE const struct np_call_site *site_of(const struct np_context *context)
{
	return (const struct np_call_site *)context->enabling;
}

/* The program's rax: the kernel uses only 32 bits of a number. */
NP_INLINE u64 rax_of(const struct np_context *context)
{
	return ((const struct np_frame *)context->frame)->rax;
}

NP_INLINE struct np_call *find(struct np_context *context, u64 stack, u64 syscall)
{
	for (u32 index = 0; index < NP_CALLS; index++) {
		struct np_call *call = &context->calls[index];
		if (call->stack == stack && (!stack || call->syscall == syscall))
			return call;
	}
	return 0;
}

NP_INLINE int does_not_return(const struct np_call_site *site, u32 number)
{
	if (site->interrupt)
		return number == NP_CALL_32_SIGRETURN || number == NP_CALL_32_RT_SIGRETURN;
	return number == NP_CALL_SIGRETURN;
}

NP_INLINE int makes_child(const struct np_call_site *site, u64 number)
{
	if (number == NP_CALL_CLONE3)
		return 1;
	if (site->interrupt)
		return number == NP_CALL_32_FORK || number == NP_CALL_32_CLONE || number == NP_CALL_32_VFORK;
	return number == NP_CALL_CLONE || number == NP_CALL_FORK || number == NP_CALL_VFORK;
}

NP_ENTRY void np_call_begin(struct np_context *context)
{
	u64 stack = context->target_rsp, syscall = site_of(context)->syscall;
	u32 number = (u32)rax_of(context);
	if (does_not_return(site_of(context), number))
		return;
	/* Usually no call is begun: then the first entry is free. */
	struct np_call *call = &context->calls[0];
	if (call->stack)
		call = find(context, stack, syscall);
	if (!call)
		call = find(context, 0, 0);
	if (!call)
		call = &context->calls[context->call_next++ % NP_CALLS];
	call->syscall = syscall;
	call->number = number;
	call->stack = stack;
}

/* What begins in this thread, which a call has just made. The child of vfork has its creator's context, and so has a
 * thread whose thread pointer is not set yet. */
static NP_COLD u32 begun(struct np_context *context)
{
	const struct np_thread_table *table = (const struct np_thread_table *)np_header.table;
	if (!np_may_call())
		return NP_CALL_NONE;
	u32 thread = (u32)np_syscall4(NP_SYS_GETTID, 0, 0, 0, 0), process = (u32)np_syscall4(NP_SYS_GETPID, 0, 0, 0, 0);
	/* The context may have been that of a thread that has ended, at the same thread pointer. */
	if (*(volatile u32 *)context->tid_address != np_load_once(context->tid))
		np_thread_changed(context);
	if (thread != process)
		return context->tid == thread ? NP_CALL_THREAD_BEGINS : NP_CALL_NONE;
	if (np_pid_of(table) != process && context->pid != process)
		return NP_CALL_NONE;
	/* musl writes the number of a child into its block after the call: until then it is the parent's. */
	if (*(volatile u32 *)context->tid_address != thread) {
		context->tid_address = (u64)&context->tid;
		context->tid = thread;
	}
	return NP_CALL_PROCESS_BEGINS;
}

NP_ENTRY void np_call_end(struct np_context *context)
{
	struct np_call *call = find(context, context->target_rsp, site_of(context)->syscall);
	context->call_number = NP_CALL_NONE;
	if (!call) {
		if (site_of(context)->begins && rax_of(context) == 0)
			context->call_number = begun(context);
		return;
	}
	u64 number = call->number;
	if (makes_child(site_of(context), number) && rax_of(context) == 0)
		return;
	call->stack = 0;
	context->call_number = (u32)np_minimum(number, NP_CALL_NUMBERS);
}

/* Yields the handler to call; 0: none. The enabling of the number becomes the one that is served. Where the thread goes
 * is read from the site, which lies in read-only memory, and never from the context. */
NP_INLINE u64 select(struct np_context *context, const struct np_call_site *site, u64 number)
{
	const struct np_enabling *enabling = ((const struct np_enabling *const *)site->table)[number];
	if (!enabling)
		return 0;
	struct np_enabling *called = &context->called;
	called->epid = enabling->epid;
	called->probe_id = enabling->probe_id;
	called->site = site->enabling.site;
	called->offset = 0;
	called->provider = enabling->provider;
	called->module = enabling->module;
	called->function = enabling->function;
	called->name = enabling->name;
	called->slot_base = enabling->slot_base;
	context->enabling = (u64)called;
	return site->handler;
}

NP_ENTRY u64 np_call_select_entry(struct np_context *context, const struct np_call_site *site)
{
	return select(context, site, np_minimum((u32)rax_of(context), NP_CALL_NUMBERS));
}

NP_ENTRY u64 np_call_select_return(struct np_context *context, const struct np_call_site *site)
{
	u32 number = np_load_once(context->call_number);
	return number < NP_CALL_ROWS ? select(context, site, number) : 0;
}

/* Counts under the number of the call that has ended. Where the counter is, too, is read from read-only memory. */
NP_ENTRY void np_call_count(struct np_context *context, const struct np_call_site *site)
{
	u32 number = np_load_once(context->call_number);
	if (number < NP_CALL_ROWS)
		*(u64 *)((u64)context + ((const u32 *)site->table)[number]) += 1;
}

/* The handlers' entries; those of `entry`, `return` and `count` come from the code of a site, whose address is in rax.
 * A system call takes its fourth argument in r10, and a handler in rcx, which the system call changes. int 0x80 takes
 * its arguments in ebx, ecx, edx, esi, edi, ebp. */
__asm__(".text\n"
	".globl np_call_begin_handler, np_call_end_handler, np_call_entry_handler, np_call_return_handler\n"
	".globl np_call_count_handler\n"
	".type np_call_begin_handler, @function\n"
	"np_call_begin_handler:\n"
	"	pushq %rdi\n"
	"	movq %r15, %rdi\n"
	"	call np_call_begin\n"
	"	popq %rdi\n"
	"	ret\n"
	".size np_call_begin_handler, . - np_call_begin_handler\n"
	".type np_call_end_handler, @function\n"
	"np_call_end_handler:\n"
	"	pushq %rdi\n"
	"	movq %r15, %rdi\n"
	"	call np_call_end\n"
	"	popq %rdi\n"
	"	ret\n"
	".size np_call_end_handler, . - np_call_end_handler\n"
	".type np_call_entry_handler, @function\n"
	"np_call_entry_handler:\n"
	"	pushq %rdi\n"
	"	pushq %rsi\n"
	"	movq %r15, %rdi\n"
	"	movq %rax, %rsi\n"
	"	call np_call_select_entry\n"
	"	cmpl $0, 128(%rsi)\n" /* site->interrupt */
	"	popq %rsi\n"
	"	popq %rdi\n"
	"	jne 2f\n"
	"	testq %rax, %rax\n"
	"	je 1f\n"
	"	pushq %rcx\n"
	"	movq %r10, %rcx\n"
	"	call *%rax\n"
	"	popq %rcx\n"
	"1:	ret\n"
	"2:	testq %rax, %rax\n"
	"	je 1b\n"
	"	pushq %rdi\n"
	"	pushq %rsi\n"
	"	pushq %rdx\n"
	"	pushq %rcx\n"
	"	pushq %r8\n"
	"	pushq %r9\n"
	"	movl %ebp, %r9d\n"
	"	movl %edi, %r8d\n"
	"	movl %ebx, %edi\n"
	"	xchgl %ecx, %esi\n"
	"	movl %edx, %edx\n"
	"	call *%rax\n"
	"	popq %r9\n"
	"	popq %r8\n"
	"	popq %rcx\n"
	"	popq %rdx\n"
	"	popq %rsi\n"
	"	popq %rdi\n"
	"	ret\n"
	".size np_call_entry_handler, . - np_call_entry_handler\n"
	".type np_call_return_handler, @function\n"
	"np_call_return_handler:\n"
	"	pushq %rdi\n"
	"	pushq %rsi\n"
	"	movq %r15, %rdi\n"
	"	movq %rax, %rsi\n"
	"	call np_call_select_return\n"
	"	popq %rsi\n"
	"	popq %rdi\n"
	"	testq %rax, %rax\n"
	"	je 1f\n"
	"	jmp *%rax\n"
	"1:	ret\n"
	".size np_call_return_handler, . - np_call_return_handler\n"
	".type np_call_count_handler, @function\n"
	"np_call_count_handler:\n"
	"	pushq %rdi\n"
	"	pushq %rsi\n"
	"	movq %r15, %rdi\n"
	"	movq %rax, %rsi\n"
	"	call np_call_count\n"
	"	popq %rsi\n"
	"	popq %rdi\n"
	"	ret\n"
	".size np_call_count_handler, . - np_call_count_handler\n");

_Static_assert(__builtin_offsetof(struct np_call_site, agent) == 96, "CALL_SITE_CODE");
_Static_assert(__builtin_offsetof(struct np_call_site, code) == 104, "CALL_SITE_CODE");
_Static_assert(__builtin_offsetof(struct np_call_site, interrupt) == 128, "np_call_entry_handler");
_Static_assert(sizeof(struct np_context) <= NP_CONTEXT_SLOTS, "np_context");
