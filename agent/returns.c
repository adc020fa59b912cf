/* Replaced return addresses (kretprobes): see returns.h for the theory of operation. */
#include "returns.h"
#include "chain.h"
#include "guard.h"
#include "ranges.h"
#include "threads.h"

#define NP_STATE_OF(state) ((state) & 3u)
/* The size of the largest stack: memory further above a stack pointer belongs to another thread. */
#define NP_STACK_BYTES_MAX (1UL << 30)
#define NP_PAGE_BYTES 4096UL
/* mov $15, %rax; syscall: the code to which a signal handler returns. */
#define NP_SIGRETURN_CODE 0x0f0000000fc0c748UL

NP_INLINE struct np_return_pool *pool_of_process(void)
{
	return (struct np_return_pool *)np_load_once(*(u64 *)&np_header.returns);
}

NP_INLINE u64 thunk_of(u64 index)
{
	return np_header.thunks + index * NP_RETURN_THUNK_BYTES;
}

/* The index of the instance whose thunk begins at `address`; NP_RETURN_INSTANCES: no thunk begins there. */
NP_INLINE u64 index_of(u64 address)
{
	u64 offset = address - np_header.thunks;
	return offset < NP_RETURN_INSTANCES * NP_RETURN_THUNK_BYTES && np_header.thunks ? offset / NP_RETURN_THUNK_BYTES
	                                                                                : NP_RETURN_INSTANCES;
}

u64 np_real_return_address(u64 address)
{
	for (u32 link = 0; link <= NP_RETURN_CHAIN_MAX; link++) {
		u64 index = index_of(address);
		if (np_likely(index >= NP_RETURN_INSTANCES))
			break;
		address = np_load_once(pool_of_process()->instances[index].address);
	}
	return address;
}

/* Whether `address` can only be a place to which a call, or a signal handler, returns. At a function's entry the stack
 * pointer points at such an address. At a label that is no function, although it has a function's name, the stack
 * pointer hardly ever does so. */
static NP_COLD int follows_patched_call(u64 address)
{
	struct np_redirect redirect;
	u64 code;
	return (np_redirect_before(address - 1, &redirect) && address - redirect.from <= 15) ||
	       (np_guarded_u64(address, &code) && code == NP_SIGRETURN_CODE);
}

NP_INLINE int follows_call(u64 address)
{
	u64 before;
	if (address < NP_LOWEST_ADDRESS + 8 || address > NP_HIGHEST_ADDRESS || !np_guarded_u64(address - 8, &before))
		return 0;
	u32 opcode = (u8)(before >> 24); /* five bytes back: call rel32, or our jump over it */
	if (np_likely(opcode == 0xe8 || opcode == 0xe9))
		return 1;
	/* ff /2 with an operand of 1, 2, 3, 5 or 6 bytes; its first byte and the middle bits of its second. */
	static const u8 lengths[5] = { 2, 3, 4, 6, 7 };
	for (u32 number = 0; number < 5; number++) {
		u32 pair = (u32)(before >> (64 - 8 * lengths[number])) & 0x38ff;
		if (pair == 0x10ff)
			return 1;
	}
	return (u8)(before >> 16) == 0xe9 || (u8)(before >> 8) == 0xe9 || follows_patched_call(address);
}

/* Whether a thread may still return through this instance's thunk: this is so as long as its slot holds the thunk,
 * or the real address that was restored there. In the second case a thread may have loaded the thunk's address
 * just before the restoration. */
static int is_needed(const struct np_return_pool *pool, u64 index)
{
	const struct np_return_instance *instance = &pool->instances[index];
	u64 word, mine = thunk_of(index);
	if (!np_guarded_u64(instance->slot, &word))
		return 0;
	if (word == np_real_return_address(mine))
		return 1;
	/* The slot holds another word than this instance's thunk. If that word is the thunk of a tail call, the real
	 * addresses in the instances may lead to this thunk, in several steps. Otherwise a later call uses the slot now. */
	for (u32 link = 0; link <= NP_RETURN_CHAIN_MAX; link++) {
		if (word == mine)
			return 1;
		u64 other = index_of(word);
		if (other >= NP_RETURN_INSTANCES)
			return 0;
		word = np_load_once(pool->instances[other].address);
	}
	return 1;
}

/* Takes the instance if its state is still `state`. */
NP_INLINE int claim(struct np_return_instance *instance, u32 state)
{
	return __atomic_compare_exchange_n(&instance->state, &state, ((state & ~3u) + 4) | NP_RETURN_CLAIMED, 0,
	                                   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Takes a new chunk for a thread that already owns `owned` chunks, and claims the chunk's first instance. */
static struct np_return_instance *claim_chunk(struct np_context *context, struct np_return_pool *pool, u32 owned)
{
	u32 maxactive = (u32)np_minimum(pool->head.maxactive, NP_RETURN_INSTANCES), taken = owned * NP_RETURN_CHUNK;
	u32 chunk = np_load_once(pool->head.chunk_count);
	if (taken >= maxactive)
		return 0;
	do {
		if (chunk >= NP_RETURN_CHUNKS)
			return 0;
	} while (!__atomic_compare_exchange_n(&pool->head.chunk_count, &chunk, chunk + 1, 0, __ATOMIC_ACQ_REL,
	                                      __ATOMIC_ACQUIRE));
	struct np_return_instance *instances = &pool->instances[chunk * NP_RETURN_CHUNK];
	for (u32 number = maxactive - taken; number < NP_RETURN_CHUNK; number++)
		np_store(instances[number].state, NP_RETURN_NEVER);
	np_store(instances->state, NP_RETURN_CLAIMED);
	np_store(pool->chunk_owners[chunk], context->index + 1);
	return instances;
}

/* Claims an instance: a free instance of the thread, else one that is no longer needed, else one of a new chunk. 0:
 * there is none. */
static NP_COLD struct np_return_instance *claim_slowly(struct np_context *context, struct np_return_pool *pool)
{
	u32 owned = 0, chunks = (u32)np_minimum(np_load_once(pool->head.chunk_count), NP_RETURN_CHUNKS);
	for (u32 pass = 0; pass < 2; pass++) {
		owned = 0;
		for (u32 chunk = 0; chunk < chunks; chunk++) {
			if (np_load_once(pool->chunk_owners[chunk]) != context->index + 1)
				continue;
			owned++;
			for (u32 number = 0; number < NP_RETURN_CHUNK; number++) {
				u64 index = chunk * NP_RETURN_CHUNK + number;
				struct np_return_instance *instance = &pool->instances[index];
				u32 state = np_load_once(instance->state);
				if (NP_STATE_OF(state) == NP_RETURN_FREE && claim(instance, state))
					return instance;
				if (pass && NP_STATE_OF(state) == NP_RETURN_ARMED && !is_needed(pool, index) &&
				    claim(instance, state)) {
					context->returns_missed++;
					return instance;
				}
			}
		}
	}
	return claim_chunk(context, pool, owned);
}

/* The instance that the thread has used last, or the one after it. */
NP_INLINE struct np_return_instance *claim_next(struct np_context *context, struct np_return_pool *pool)
{
	struct np_return_instance *instance = (struct np_return_instance *)context->return_cursor;
	u64 offset = context->return_cursor - (u64)pool->instances, index = offset / sizeof(*instance);
	if (np_likely(offset < sizeof(pool->instances) && offset % sizeof(*instance) == 0 &&
	              pool->chunk_owners[index / NP_RETURN_CHUNK] == context->index + 1)) {
		u32 state = np_load_once(instance->state);
		if (np_likely(NP_STATE_OF(state) == NP_RETURN_FREE && claim(instance, state)))
			return instance;
	}
	return claim_slowly(context, pool);
}

/* A signal handler may interrupt here and take an instance of the same chunk. Even then no bound is lost. */
static NP_COLD void widen(struct np_return_pool *pool, u64 chunk, u64 slot)
{
	u64 *lowest = &pool->chunk_lowest[chunk], *highest = &pool->chunk_highest[chunk];
	for (u64 found = np_load_once(*highest); slot > found;)
		if (__atomic_compare_exchange_n(highest, &found, slot, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			break;
	for (u64 found = np_load_once(*lowest); !found || slot < found;)
		if (__atomic_compare_exchange_n(lowest, &found, slot, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			break;
}

NP_INLINE u64 take(struct np_context *context, u64 slot, u64 stub, int at_jump)
{
	struct np_return_pool *pool = pool_of_process();
	u64 address = *(volatile u64 *)slot, inner = index_of(address);
	u32 depth = 0;
	if (np_unlikely(np_load_once(pool->head.events) != np_load_once(pool->head.answered)))
		goto missed;
	if (np_unlikely(inner < NP_RETURN_INSTANCES)) {
		/* The function was reached by a tail call: the caller's instance lies below this instance. */
		const struct np_return_instance *below = &pool->instances[inner];
		if (!at_jump && below->slot == slot && below->stub == stub)
			return 0; /* the function has jumped to its own start: it returns once */
		if (below->slot != slot || below->depth >= NP_RETURN_CHAIN_MAX)
			goto missed;
		depth = below->depth + 1;
	} else if (np_unlikely(!follows_call(address))) {
		goto missed;
	}
	struct np_return_instance *instance = claim_next(context, pool);
	if (np_unlikely(!instance))
		goto missed;
	u64 index = (u64)(instance - pool->instances), chunk = index / NP_RETURN_CHUNK;
	if (np_unlikely(slot < pool->chunk_lowest[chunk] || slot > pool->chunk_highest[chunk]))
		widen(pool, chunk, slot);
	instance->address = address;
	instance->slot = slot;
	instance->stub = stub;
	instance->depth = depth;
	/* The state is stored first: a signal handler that interrupts here and unwinds must find the instance that it has
	 * to restore. */
	np_store(instance->state, (instance->state & ~3u) | NP_RETURN_ARMED);
	np_store(*(u64 *)slot, thunk_of(index));
	context->return_cursor = (index + 1) % NP_RETURN_CHUNK ? (u64)(instance + 1) : 0;
	return (u64)instance;
missed:
	context->returns_missed++;
	return 0;
}

NP_ENTRY u64 np_return_take(struct np_context *context, u64 slot, u64 stub)
{
	return take(context, slot, stub, 0);
}

/* For a jump to another function: if a thread arrives at the jump again with the same slot, the other function was
 * entered again. */
NP_ENTRY u64 np_return_take_at_jump(struct np_context *context, u64 slot, u64 stub)
{
	return take(context, slot, stub, 1);
}

/* Yields whether `slot` held `thunk`; if so, it now holds `address`. Another thread may be returning through the
 * slot at this moment. */
NP_INLINE int replace_in_slot(u64 slot, u64 thunk, u64 address)
{
	u64 word;
	if (!np_guarded_u64(slot, &word) || word != thunk)
		return 0;
	__asm__ volatile goto(NP_GUARDED("lock cmpxchgq %2, (%1)")
		: "+a"(word) : "r"(slot), "r"(address) : "memory", "cc" : fault);
	return word == thunk;
fault:
	return 0;
}

/* The calling thread's stack, from its stack pointer upwards: to the end of the mapping, but no further than its
 * thread control block. If a C library has mapped both, that block lies above the stack. */
struct stack {
	u64 lowest;
	u64 seen;               /* all memory below this address is mapped */
	u64 limit;
};

NP_INLINE struct stack stack_above(u64 lowest)
{
	u64 key = np_thread_key(), limit = lowest + NP_STACK_BYTES_MAX;
	return (struct stack){ lowest, (lowest | (NP_PAGE_BYTES - 1)) + 1, key > lowest ? np_minimum(key, limit) : limit };
}

static int is_on(struct stack *stack, u64 slot)
{
	u64 word;
	if (slot < stack->lowest)
		return 0;
	for (; slot < stack->limit && stack->seen <= slot; stack->seen += NP_PAGE_BYTES)
		if (!np_guarded_u64(stack->seen, &word))
			stack->limit = stack->seen;
	return slot < stack->limit;
}

/* The entry for the calling thread in struct np_return_pool.chunk_owners; 0: it has no chunk. */
static u32 own_number(void)
{
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	u64 key = np_context_key(table);
	u32 first = (u32)(key * NP_TABLE_FACTOR >> (64 - NP_TABLE_BITS));
	for (u32 probe = 0; key && probe < NP_TABLE_PROBES; probe++) {
		const struct np_thread_slot *slot = &table->slots[(first + probe) & (NP_TABLE_SLOTS - 1)];
		u64 found = np_load_once(slot->key), context = np_load_once(slot->context);
		if (found == key)
			return context ? ((const struct np_context *)context)->index + 1 : 0;
		if (!found)
			break;
	}
	return 0;
}

/* Whether an instance of a chunk may have its slot on the stack. Most chunks belong to other threads and have no
 * such slot. So the work for a stack depends on the number of addresses that its own thread has replaced, and not
 * on those of the whole process. */
NP_INLINE int may_be_on(const struct np_return_pool *pool, u64 chunk, const struct stack *stack)
{
	return np_load_once(pool->chunk_lowest[chunk]) < stack->limit &&
	       np_load_once(pool->chunk_highest[chunk]) >= stack->lowest;
}

/* Restores the return addresses of a chunk that lie on `stack`, or belong to this thread (`is_own`). If `stack` is 0,
 * restores those of all stacks, but only while an event waits for the tracer's answer: then no address is replaced.
 * See returns.h. */
static void put_back_chunk(struct np_return_pool *pool, u64 chunk, struct stack *stack, int is_own)
{
	for (u64 index = chunk * NP_RETURN_CHUNK; index < (chunk + 1) * NP_RETURN_CHUNK; index++) {
		struct np_return_instance *instance = &pool->instances[index];
		if (NP_STATE_OF(np_load_once(instance->state)) != NP_RETURN_ARMED)
			continue;
		u64 slot = instance->slot;
		if (stack ? !is_own && !is_on(stack, slot) : np_load_once(pool->head.events) == np_load_once(pool->head.answered))
			continue;
		replace_in_slot(slot, thunk_of(index), np_real_return_address(instance->address));
	}
}

static void put_back(struct stack *stack)
{
	u32 own = stack ? own_number() : 0;
	struct np_return_pool *pool = pool_of_process();
	u64 chunks = np_minimum(np_load_once(pool->head.chunk_count), NP_RETURN_CHUNKS);
	for (u64 chunk = 0; chunk < chunks; chunk++) {
		int is_own = own && np_load_once(pool->chunk_owners[chunk]) == own;
		if (!stack || is_own || may_be_on(pool, chunk, stack))
			put_back_chunk(pool, chunk, stack, is_own);
	}
}

NP_ENTRY void np_return_put_back(void)
{
	struct stack stack = stack_above((u64)__builtin_frame_address(0));
	put_back(&stack);
}

/* For np_return_give_back: the word in the slot is usually a thunk's address, but can be anything. */
__attribute__((visibility("hidden"), no_caller_saved_registers, used)) void np_return_give_back_in(u64 slot)
{
	u64 word;
	if (np_guarded_u64(slot, &word) && index_of(word) < NP_RETURN_INSTANCES)
		replace_in_slot(slot, word, np_real_return_address(word));
}

NP_ENTRY void np_return_suspend(void)
{
	__atomic_fetch_add(&pool_of_process()->head.events, 1, __ATOMIC_SEQ_CST);
	put_back(0);
}

_Static_assert(__builtin_offsetof(struct np_image, returns) == 80, "used below");
_Static_assert(__builtin_offsetof(struct np_image, thunks) == 88, "used below");
_Static_assert(NP_RETURN_INSTANCES * NP_RETURN_THUNK_BYTES == 0x100000, "used below");
_Static_assert(__builtin_offsetof(struct np_return_pool, instances) == 4160, "used below");
_Static_assert(sizeof(struct np_return_instance) == 32, "used below");
_Static_assert(__builtin_offsetof(struct np_return_instance, stub) == 16, "used below");
_Static_assert(__builtin_offsetof(struct np_return_instance, state) == 24, "used below");
_Static_assert(__builtin_offsetof(struct np_context, return_cursor) == 272, "used below");

__asm__(".text\n"
	/* From a detour: rax = the stub, rsi = the slot, r15 = the context. The result is in rax;
	 * everything else stays. */
	".globl np_return_take_at\n"
	".type np_return_take_at, @function\n"
	"np_return_take_at:\n"
	"	pushq %rdi\n"
	"	pushq %rdx\n"
	"	movq %r15, %rdi\n"
	"	movq %rax, %rdx\n"
	"	call np_return_take\n"
	"	popq %rdx\n"
	"	popq %rdi\n"
	"	ret\n"
	".size np_return_take_at, . - np_return_take_at\n"
	".globl np_return_take_at_jump_from\n"
	".type np_return_take_at_jump_from, @function\n"
	"np_return_take_at_jump_from:\n"
	"	pushq %rdi\n"
	"	pushq %rdx\n"
	"	movq %r15, %rdi\n"
	"	movq %rax, %rdx\n"
	"	call np_return_take_at_jump\n"
	"	popq %rdx\n"
	"	popq %rdi\n"
	"	ret\n"
	".size np_return_take_at_jump_from, . - np_return_take_at_jump_from\n"
	/* The detour at the entry of a function that looks at its own return address calls this. The stack has, from this
	 * call's return address up: the flags, r15 and rax, and then the function's return address. */
	".globl np_return_give_back\n"
	".type np_return_give_back, @function\n"
	"np_return_give_back:\n"
	"	movq 32(%rsp), %rax\n"
	"	subq np_header+88(%rip), %rax\n"
	"	cmpq $0x100000, %rax\n"
	"	jae 1f\n"
	"	pushq %rdi\n"
	"	leaq 40(%rsp), %rdi\n"
	"	call np_return_give_back_in\n"
	"	popq %rdi\n"
	"1:	ret\n"
	".size np_return_give_back, . - np_return_give_back\n"
	/* From a thunk: eax = the instance's number, rsp = slot - 24, the program's rax on top of
	 * the stack. */
	".globl np_return_arrive\n"
	".type np_return_arrive, @function\n"
	"np_return_arrive:\n"
	"	pushq %r15\n"
	"	movl %eax, %r15d\n"
	"	lahf\n"
	"	seto %al\n"
	"	pushq %rax\n"
	"	shlq $5, %r15\n"
	"	addq np_header+80(%rip), %r15\n"
	"	movq 4160(%r15), %rax\n"
	"	addq $4160, %r15\n"
	"	movq %r15, 24(%rsp)\n"
	"	movq %rax, 32(%rsp)\n"
	"	jmp *16(%r15)\n"
	".size np_return_arrive, . - np_return_arrive\n"
	/* From a stub: the context is in r15. */
	".globl np_return_leave\n"
	".type np_return_leave, @function\n"
	"np_return_leave:\n"
	"	movq 24(%rsp), %rax\n"
	"	movq %rax, 272(%r15)\n"
	".size np_return_leave, . - np_return_leave\n"
	/* np_return_leave without a context. */
	".globl np_return_leave_bare\n"
	".type np_return_leave_bare, @function\n"
	"np_return_leave_bare:\n"
	"	movq 24(%rsp), %rax\n"
	"	movq 32(%rsp), %r15\n"
	"	movq %r15, 40(%rsp)\n"
	"	andl $-4, 24(%rax)\n"
	"	popq %rax\n"
	"	addb $0x7f, %al\n"
	"	sahf\n"
	"	popq %r15\n"
	"	popq %rax\n"
	"	leaq 24(%rsp), %rsp\n"
	"	jmp *-8(%rsp)\n"
	".size np_return_leave_bare, . - np_return_leave_bare\n");
