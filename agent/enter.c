/* Finds a thread's context when the detour's single look into the thread table has failed.
 *
 * A thread's key is its thread pointer. A thread without one (a program without a C library) is identified by its
 * number, for which the kernel is asked at each hit. The same holds for all threads if some of them share one thread
 * pointer when the tracing begins, and later for a thread and a process that come to share one
 * (np_note_shared_pointer). The tracer chooses how the detours look a thread up (crates/session/src/thread_key.rs);
 * threads that the detours do not find are found here.
 *
 * The table is open addressing over keys, with linear probing from the slot that the detour has
 * looked at. A thread never gives its slot back. A key that is used again (a new thread on a dead
 * thread's stack) finds the old context, and handlers see from the id in the thread control block
 * that the thread has changed. When slots or contexts become few, the tracer frees those of threads
 * that are gone, while all threads are stopped (docs/design/threads.md).
 *
 *     1. claim a slot: compare-and-swap its key from 0 or NP_SLOT_ENDED to ours, unless there is one with ours. A slot
 *        may be ours without a context: no context was left then, or only the thread's signal mask was of interest
 *        (shims.c).
 *     2. claim a context: one whose thread is gone, by its bit in contexts_ended; else a new one, counted in the
 *        control block, but never beyond those that are ready. The tracer makes more of them free while threads come,
 *        so a thread that finds none now misses this hit, and asks again at the next one.
 *     3. write its identity, then publish it in the slot. A nested hit, in a signal handler that came since 1, may have
 *        published one already: then the thread has the nested hit's context, and the context claimed here stays
 *        unused.
 *     4. exit() may have passed over the table between 1 and 3: look again, and take the slot back.
 *
 * A program's first thread has a thread pointer that the tracer has lent to it, or none, until its C library sets
 * another one. Its first hit after that takes the context along, with the thread's variables and the calls that it has
 * begun.
 *
 * A detour also comes here when it finds that handlers are already running in its thread. Usually a
 * signal has interrupted them. Then the detour is deeper in the stack than they are. But a
 * program's signal handler may also leave them for ever, by siglongjmp. Then the next hit is about
 * as deep as they were, or less deep, and they count as over; otherwise the thread would never
 * record again. Only on an alternate stack may live handlers look like this; the kernel then says
 * whether the thread is on that stack (not for one with SS_AUTODISARM). What the handlers had begun
 * is undone by the next code that begins the same. */
#include "guard.h"
#include "sandbox.h"
#include "syscalls.h"
#include "threads.h"

/* How often to try to increment the count of contexts, against other threads that want one at the
 * same moment. */
#define NP_CLAIM_ATTEMPTS 1000
/* A signal's frame with the red zone above it is larger than this; our own frame here, with the red
 * zone of one of two sites, is smaller. */
#define NP_SIGNAL_FRAME_MIN 640

/* Full barrier: the store before it is visible before the load after it is made. */
NP_INLINE void full_barrier(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

NP_INLINE u64 missed(const struct np_control *control, u64 *count)
{
	if (!np_load_once(control->exit_requested))
		__atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
	return 0;
}

/* The address at which the C library keeps the thread's number. If this is unknown: the address of the context's
 * own word. A C library's thread control block begins with its own address; other thread pointers point to memory
 * that is not a thread control block. While the dynamic linker prepares a program, the block has no number yet. */
NP_INLINE u64 tid_address(const struct np_control *control, const struct np_context *context, u64 key)
{
	u64 self, number = 0, address = key + control->tid_offset;
	int has_block = control->tid_offset && !(key & NP_KEY_OF_NUMBER) && np_guarded_u64(key, &self) && self == key;
	return has_block && np_guarded_u32(address, &number) && (u32)number ? address : (u64)&context->tid;
}

NP_INLINE u32 read_tid(const struct np_context *context)
{
	if (context->tid_address != (u64)&context->tid)
		return *(volatile u32 *)context->tid_address;
	return np_may_call() ? (u32)np_syscall4(NP_SYS_GETTID, 0, 0, 0, 0) : 0;
}

/* A new context, still zero, from the tracer's example: offsets there become addresses. */
static void initialise(struct np_control *control, struct np_context *context, u32 index)
{
	const struct np_context *example = (const struct np_context *)((u64)control + control->example_offset);
	u64 base = (u64)context;
	context->control = (u64)control;
	context->index = index;
	context->scratch = base + example->scratch;
	context->scratch_bytes = example->scratch_bytes;
	context->key = base + example->key;
	context->key_capacity = example->key_capacity;
	context->locals = base + example->locals;
	context->locals_bytes = example->locals_bytes;
	context->clause_locals = base + example->clause_locals;
	if (np_header.stacks)
		context->handler_stack = np_header.stacks + NP_HANDLER_STACKS + (index + 1UL) * NP_HANDLER_STACK_BYTES;
	context->ring = example->ring ? base + example->ring : 0;
	context->ring_bytes = example->ring_bytes;
	context->ring_policy = example->ring_policy;
	context->ring_untimed = example->ring_untimed;
	context->aggregates = example->aggregates ? base + example->aggregates : 0;
	context->aggregates_wanted = context->aggregates;
	if (context->aggregates) {
		const struct np_aggregate_table *head =
			(const struct np_aggregate_table *)((u64)example + NP_EXAMPLE_AGGREGATES);
		struct np_aggregate_table *table = (struct np_aggregate_table *)context->aggregates;
		table->bytes = head->bytes;
		table->bucket_mask = head->bucket_mask;
		np_store(table->used, head->used);
	}
}

NP_INLINE struct np_context *context_at(struct np_control *control, u32 index)
{
	return (struct np_context *)((u64)control + control->contexts_offset + index * control->context_stride);
}

/* The counts and records of the earlier thread stay, and new ones are added. What the earlier thread had begun is over.
 */
static void begin_anew(struct np_context *context)
{
	context->fault = 0;
	context->scratch_used = 0;
	context->ring_pending = 0;
	context->return_cursor = 0;
	for (u32 call = 0; call < NP_CALLS; call++)
		np_store(context->calls[call].stack, 0);
	np_store(context->busy, 0);
	np_thread_changed(context);
}

/* Claims a context whose thread is gone; 0: there is no such context. */
static struct np_context *take_ended(struct np_control *control)
{
	u32 known = (u32)np_minimum(np_load_once(control->context_count), np_load_once(control->context_capacity));
	for (u32 word = 0; word < NP_CONTEXTS_MAX / 64; word++) {
		u64 ended = np_load_once(control->contexts_ended[word]);
		for (u32 attempt = 0; ended && attempt < 64; attempt++) {
			u32 number = (u32)__builtin_ctzl(ended), index = word * 64 + number;
			u64 bit = 1UL << number;
			if (__atomic_fetch_and(&control->contexts_ended[word], ~bit, __ATOMIC_ACQ_REL) & bit && index < known)
				return context_at(control, index);
			ended = np_load_once(control->contexts_ended[word]);
		}
	}
	return 0;
}

/* Claims a context that no thread has had; 0: there is no such context. */
static struct np_context *take_new(struct np_control *control)
{
	u32 index = np_load_once(control->context_count), attempt = 0;
	do {
		if (index >= np_load_once(control->context_capacity) || attempt++ == NP_CLAIM_ATTEMPTS)
			return 0;
	} while (!__atomic_compare_exchange_n(&control->context_count, &index, index + 1, 0, __ATOMIC_ACQ_REL,
	                                      __ATOMIC_ACQUIRE));
	struct np_context *context = context_at(control, index);
	initialise(control, context, index);
	return context;
}

/* The process of the context. A context whose `thread_key` is 0 is being claimed, whatever these fields hold. */
NP_INLINE void identify_process(const struct np_control *control, struct np_context *context, u64 key)
{
	const struct np_thread_table *table = (const struct np_thread_table *)np_header.table;
	context->process_began = table->began;
	context->pid = table->began ? table->pid : control->shown_pid;
	context->parent = table->began ? table->parent : control->shown_parent;
	/* It may be another process with the same memory. */
	int has_own_numbers = table->began ? !table->inherited.nested : control->shown_pid == control->target_pid;
	if (np_load_once(table->shared_pointers) && key & NP_KEY_OF_NUMBER && has_own_numbers && np_may_call()) {
		context->pid = (u32)np_syscall4(NP_SYS_GETPID, 0, 0, 0, 0);
		context->parent = (u32)np_syscall4(NP_SYS_GETPPID, 0, 0, 0, 0);
	}
	context->ancestors = (u64)table->inherited.ancestors;
}

/* The context that this thread had under its earlier key, before the C library set its thread pointer; 0: none. */
static NP_COLD struct np_context *take_earlier(struct np_thread_table *table, u64 key, u64 earlier)
{
	struct np_thread_slot *open, *slot = key == earlier ? 0 : np_find_slot(table, earlier, &open);
	u64 found = slot ? np_load_once(slot->context) : 0;
	struct np_context *context = (struct np_context *)found;
	/* Another thread may have it: one that made this one, and needs no thread pointer itself. */
	if (!found || !np_may_call() || context->tid != (u32)np_syscall4(NP_SYS_GETTID, 0, 0, 0, 0))
		return 0;
	/* The tracer frees contexts of thread pointers that no thread has. From here on this is none of these. */
	np_store(context->thread_key, key);
	if (!__atomic_compare_exchange_n(&slot->context, &found, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return 0;
	return context;
}

/* The calling thread is about to make a process that has its memory and its thread pointer, and runs beside it. From
 * now on both are identified by their numbers, and the thread takes its context along. A signal handler that comes in
 * between finds the same context by either key. */
void np_note_shared_pointer(struct np_thread_table *table)
{
	u64 pointer = np_thread_pointer(), number = np_number_key(), none = 0;
	struct np_thread_slot *open, *marker, *own, *slot;
	if (pointer <= NP_SLOT_ENDED || np_find_slot(table, pointer | NP_KEY_SHARED, &open))
		return;
	np_store(table->early_keys, 1);
	own = number ? np_own_slot(table, number) : 0;
	slot = np_find_slot(table, pointer, &open);
	struct np_context *context = slot ? (struct np_context *)np_load_once(slot->context) : 0;
	if (own && context && __atomic_compare_exchange_n(&own->context, &none, (u64)context, 0, __ATOMIC_ACQ_REL,
	                                                  __ATOMIC_ACQUIRE))
		np_store(context->thread_key, number);
	marker = np_claim_slot(table, pointer | NP_KEY_SHARED);
	/* Without room for it the two go on with one context, as if one had interrupted the other. */
	if (!marker)
		return;
	np_store(table->shared_pointers, 1);
	if (slot)
		np_store(slot->context, 0);
}

static NP_COLD u64 claim_context(struct np_control *control, struct np_thread_slot *slot, u64 key)
{
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	struct np_context *own = 0;
	/* Where no thread has had such a key, its slot is not looked at: in a child each page is a fault. */
	if (np_load_once(table->early_keys)) {
		own = take_earlier(table, key, (u64)&table->lent);
		/* A static program's first thread had no thread pointer. */
		if (!own)
			own = take_earlier(table, key, NP_KEY_OF_NUMBER | np_pid_of(table));
	}
	struct np_context *ended = own ? 0 : take_ended(control);
	struct np_context *context = own ? own : ended ? ended : take_new(control);
	if (!context)
		return missed(control, &control->missed_without_context);
	/* Before the context is published under it. */
	if (key == (u64)&table->lent || key & NP_KEY_OF_NUMBER)
		np_store(table->early_keys, 1);
	/* In a child, one read lets the kernel map the pages around, too, if they exist. A write would map one. */
	(void)np_load_once(context->thread_key);
	context->tid_address = tid_address(control, context, key);
	identify_process(control, context, key);
	if (ended)
		begin_anew(context);
	else
		context->tid = read_tid(context);
	np_store(context->thread_key, key);
	u64 found = 0;
	if (!__atomic_compare_exchange_n(&slot->context, &found, (u64)context, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return found;
	full_barrier();
	if (np_load_once(control->exit_requested)) {
		np_store(slot->context, 0);
		return 0;
	}
	return (u64)context;
}

/* Whether the thread runs on its alternate signal stack, or the kernel cannot be asked. */
static NP_COLD int may_be_on_alternate_stack(void)
{
	enum { ON_STACK = 1 };
	struct {
		u64 address;
		i32 flags;
		u64 bytes;
	} stack;
	stack.flags = ON_STACK;
	return !np_may_call() || np_syscall4(NP_SYS_SIGALTSTACK, 0, (u64)&stack, 0, 0) != 0 || (stack.flags & ON_STACK) != 0;
}

static NP_COLD void end_if_left(struct np_context *context, u64 here)
{
	/* A signal has arrived while the handler was on its own stack, and the signal's handler is on
	 * that stack, too. */
	if (context->handler_stack - here <= NP_HANDLER_STACK_BYTES)
		return;
	if (here + NP_SIGNAL_FRAME_MIN >= context->busy && !may_be_on_alternate_stack())
		np_store(context->busy, 0);
}

/* Whether hits count in this process, even if it is a child that has not taken its table. */
NP_INLINE int is_traced(const struct np_thread_table *table)
{
	return np_load_once(table->magic) == NP_MAGIC || np_follows();
}

/* Whether this may be the first hit of a followed child. The thread has no slot then, and takes the table without a
 * look at its magic number: a page of a child that is read and then written is two faults. */
NP_INLINE int may_be_first(struct np_thread_table *table)
{
	u64 pointer = np_follows() ? np_thread_pointer() : 0;
	u32 first = (u32)(pointer * NP_TABLE_FACTOR >> (64 - NP_TABLE_BITS));
	return pointer > NP_SLOT_ENDED && np_load_once(table->slots[first].key) == 0;
}

/* np_enter; `here`: the stack pointer at the site, or slightly below. */
__attribute__((visibility("hidden"), no_caller_saved_registers, used)) u64 np_enter_from(u64 here)
{
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	struct np_control *control = (struct np_control *)np_header.control;
	/* A forked child that is not followed: the arena is its parent's. It comes here at each hit, and touches little. */
	if (!np_follows() && np_unlikely(np_load_once(table->magic) != NP_MAGIC))
		return 0;
	/* Before a child takes its table, which reads the clock. */
	if (np_unlikely(np_load_once(table->inherited.sandboxed) == NP_SANDBOXED_WITHOUT_CLOCK))
		return is_traced(table) ? missed(control, &control->missed_without_context) : 0;
	if (!(may_be_first(table) ? np_take_table() : np_is_usable(table)))
		return 0;
	if (np_load_once(control->exit_requested))
		return 0;
	u64 key = np_context_key(table);
	if (!key)
		return missed(control, &control->missed_unknown_thread);
	struct np_thread_slot *slot = np_own_slot(table, key);
	if (!slot)
		return missed(control, &control->missed_without_context);
	struct np_context *context = (struct np_context *)np_load_once(slot->context);
	if (!context)
		return claim_context(control, slot, key);
	if (np_unlikely(context->busy != 0))
		end_if_left(context, here);
	return (u64)context;
}

/* How many hits found no free stack for the search for their context. */
__attribute__((visibility("hidden"), no_caller_saved_registers, used)) u64 np_enter_without_stack(void)
{
	const struct np_thread_table *table = (const struct np_thread_table *)np_header.table;
	struct np_control *control = (struct np_control *)np_header.control;
	/* There is no stack on which a child could take its table. */
	return is_traced(table) ? missed(control, &control->missed_without_context) : 0;
}

/* np_enter: rax = the context. If the process has small stacks, all but three words are on one of
 * NP_ENTRY_STACKS: the lowest bit that is 0 names a free one. If none is free, the hit is missed;
 * that takes two more words. */
__asm__(".text\n"
	".globl np_enter\n"
	".type np_enter, @function\n"
	"np_enter:\n"
	"	pushq %rcx\n"
	"	pushq %rdx\n"
	"	leaq np_header(%rip), %rdx\n"
	"	movq 120(%rdx), %rdx\n"
	"	testq %rdx, %rdx\n"
	"	jz 3f\n"
	"	xorl %eax, %eax\n"
	"1:	lock btsq %rax, (%rdx)\n"
	"	jnc 2f\n"
	"	incl %eax\n"
	"	cmpl $64, %eax\n"
	"	jb 1b\n"
	"	popq %rdx\n"
	"	popq %rcx\n"
	"	jmp np_enter_without_stack\n"
	"2:	movq %rsp, %rcx\n"
	"	shlq $13, %rax\n"
	"	leaq 4096+8192(%rdx,%rax), %rsp\n"
	"	pushq %rcx\n"
	"	pushq %rdx\n"
	"	pushq %rax\n"
	"	pushq %rdi\n"
	"	leaq 24(%rcx), %rdi\n"
	"	call np_enter_from\n"
	"	popq %rdi\n"
	"	popq %rcx\n"
	"	popq %rdx\n"
	"	popq %rsp\n"
	"	shrq $13, %rcx\n"
	"	lock btrq %rcx, (%rdx)\n"
	"	popq %rdx\n"
	"	popq %rcx\n"
	"	ret\n"
	"3:	popq %rdx\n"
	"	popq %rcx\n"
	"	pushq %rdi\n"
	"	leaq 16(%rsp), %rdi\n"
	"	call np_enter_from\n"
	"	popq %rdi\n"
	"	ret\n"
	".size np_enter, . - np_enter\n");

_Static_assert(__builtin_offsetof(struct np_image, stacks) == 120 && NP_ENTRY_STACKS == 64 &&
               NP_ENTRY_STACK_BYTES == 1 << 13, "np_enter");

NP_ENTRY void np_thread_changed(struct np_context *context)
{
	int is_forgotten = context->tid_address == (u64)&np_header.magic; /* np_forget_thread */
	if (is_forgotten)
		context->tid_address = (u64)&context->tid;
	context->tid = read_tid(context);
	/* A child of vfork leaves the mark for the thread that has made it. */
	if (is_forgotten && !np_is_traced((const struct np_thread_table *)np_header.table))
		context->tid_address = (u64)&np_header.magic;
	context->stack_start = 0;
	context->stack_end = 0;
	u64 *locals = (u64 *)context->locals;
	for (u64 word = 0; word < context->locals_bytes / 8; word++)
		((volatile u64 *)locals)[word] = 0;
}

NP_ENTRY void np_exit(struct np_context *context, u64 status)
{
	struct np_control *control = np_control_block(context);
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	/* Only the first exit() counts. */
	if (np_load_once(control->exit_requested))
		return;
	control->exit_status = (i32)status;
	np_store(control->exit_requested, 1);
	full_barrier();
	for (u32 slot = 0; slot < NP_TABLE_SLOTS; slot++)
		np_store(table->slots[slot].context, 0);
}
