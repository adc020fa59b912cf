/* Emulation: the trap's handler executes the instruction itself, on the registers of the signal frame.
 *
 *     int3 -> SIGTRAP -> np_on_trap:   fires, by a routine of the detour, with the program's registers loaded
 *                                      the instruction, on the frame's registers and the program's stack
 *          <- rt_sigreturn             after the instruction, or at its destination
 *
 * The thread never executes a copy. So a debugger, a profiler's signal or a stack walk between two
 * instructions only sees original addresses.
 *
 * Every site also has the whole detour of a jump, and the handler sends the thread there instead (the boosted form)
 *
 *   - before the probes fire, where they should not do so in a signal handler: in a forked child, whose SIGSEGV
 *     action may not be the agent's; where system calls are not allowed, since then a handler cannot pass a signal
 *     on; when the present alternate stack has no room for a second signal frame; when call or ret would have to
 *     change a shadow stack;
 *   - after they have fired, at the copy of the instruction, if the instruction would fault: the fault is then the
 *     processor's own, and np_on_fault gives it the original address.
 *
 * So the emulation first executes everything that can fault, and only then writes. Meanwhile SIGSEGV and SIGBUS
 * are not blocked (the action's mask says so): handlers read the program's memory under guard.h. */
#include "emulate.h"
#include "guard.h"
#include "syscalls.h"

enum { NP_RSP = 15 };
/* CF, PF, AF, ZF, SF, OF. */
#define NP_STATUS_FLAGS 0x8d5UL
/* How many bytes of stack the agent may need, and how many more handlers may need. */
enum { NP_AGENT_STACK = 2048, NP_HANDLER_STACK = 2048 };

/* Saves the registers that C preserves, loads the program's registers, and calls. The routine finds, from its
 * stack pointer up: the return address, its own address, the program's stack pointer. The status flags are the
 * program's: handlers may read them in the frame. rt_sigreturn does not restore some of the other flags (ID, NT),
 * so these keep the program's values here. Alignment is not checked in handlers. */
__asm__(".text\n"
	".globl np_call_routine\n"
	".hidden np_call_routine\n"
	".type np_call_routine, @function\n"
	"np_call_routine:\n"
	"	pushq %rbx; pushq %rbp; pushq %r12; pushq %r13; pushq %r14; pushq %r15\n"
	"	pushq 160(%rsi)\n"
	"	pushq %rdi\n"
	"	movl 176(%rsi), %eax\n"
	"	andl $0x8d5, %eax\n"
	"	pushfq\n"
	"	andq $~(0x8d5 | 0x40000), (%rsp)\n"
	"	orq %rax, (%rsp)\n"
	"	popfq\n"
	"	movq 40(%rsi), %r8; movq 48(%rsi), %r9; movq 56(%rsi), %r10; movq 64(%rsi), %r11\n"
	"	movq 72(%rsi), %r12; movq 80(%rsi), %r13; movq 88(%rsi), %r14; movq 96(%rsi), %r15\n"
	"	movq 104(%rsi), %rdi; movq 120(%rsi), %rbp; movq 128(%rsi), %rbx; movq 136(%rsi), %rdx\n"
	"	movq 144(%rsi), %rax; movq 152(%rsi), %rcx; movq 112(%rsi), %rsi\n"
	"	callq *(%rsp)\n"
	"	addq $16, %rsp\n"
	"	popq %r15; popq %r14; popq %r13; popq %r12; popq %rbp; popq %rbx\n"
	"	ret\n"
	".size np_call_routine, . - np_call_routine\n");

_Static_assert(__builtin_offsetof(struct np_ucontext, rsp) == 160 &&
               __builtin_offsetof(struct np_ucontext, flags) == 176 &&
               __builtin_offsetof(struct np_ucontext, rsi) == 112, "np_call_routine");

NP_INLINE u64 read_register(const struct np_ucontext *ucontext, u8 number)
{
	return number <= NP_RSP ? (&ucontext->r8)[number] : 0;
}

/* Like the processor: a write of 4 bytes clears the upper half, and a write of 2 bytes leaves the rest unchanged. */
NP_INLINE void write_register(struct np_ucontext *ucontext, u8 number, u8 size, u64 value)
{
	u64 *register_ = &(&ucontext->r8)[number & 15];
	*register_ = size == 8 ? value : size == 4 ? (u32)value : (*register_ & ~0xffffUL) | (value & 0xffff);
}

static u64 memory_address(const struct np_emulation *emulation, const struct np_ucontext *ucontext)
{
	u64 address = emulation->displacement + read_register(ucontext, emulation->base) +
	              read_register(ucontext, emulation->index) * emulation->scale;
	return emulation->address_size == 4 ? (u32)address : address;
}

int np_source(const struct np_emulation *emulation, const struct np_ucontext *ucontext, u64 *value)
{
	if (emulation->operand == NP_OPERAND_IMMEDIATE) {
		*value = emulation->immediate;
		return 1;
	}
	if (emulation->operand == NP_OPERAND_REGISTER) {
		*value = read_register(ucontext, emulation->source);
		return 1;
	}
	u64 address = memory_address(emulation, ucontext);
	if (emulation->segment == NP_SEGMENT_FS)
		return np_guarded_fs_u64(address, value);
	if (emulation->segment == NP_SEGMENT_GS)
		return np_guarded_gs_u64(address, value);
	return np_guarded_u64(address, value);
}

/* A jump to any other address may fault before it is made. */
NP_INLINE int is_user_address(u64 address)
{
	return address >> 47 == 0;
}

/* Whether the branch is taken; decrements the counter of loop. */
static int is_taken(const struct np_emulation *emulation, struct np_ucontext *ucontext)
{
	u64 flags = ucontext->flags;
	u64 carry = flags & 1, parity = flags >> 2 & 1, zero = flags >> 6 & 1, sign = flags >> 7 & 1;
	u64 overflow = flags >> 11 & 1;
	u8 condition = emulation->condition;
	if (condition < 16) {
		u64 tests[8] = { overflow, carry, zero, carry | zero, sign, parity, sign ^ overflow,
		                 zero | (sign ^ overflow) };
		return tests[condition >> 1] != (condition & 1);
	}
	u64 mask = emulation->size == 4 ? 0xffffffffUL : ~0UL;
	if (condition == NP_CONDITION_JCXZ)
		return (ucontext->rcx & mask) == 0;
	u64 count = (ucontext->rcx - 1) & mask;
	ucontext->rcx = count;
	return count && (condition == NP_CONDITION_LOOP || zero == (condition == NP_CONDITION_LOOPE));
}

#define NP_ARITHMETIC(instruction) \
	do { \
		if (size == 8) \
			__asm__(instruction "q %2, %0; pushfq; popq %1" : "+r"(left), "=r"(flags) : "r"(right) : "cc"); \
		else if (size == 4) \
			__asm__(instruction "l %k2, %k0; pushfq; popq %1" : "+r"(left), "=r"(flags) : "r"(right) : "cc"); \
		else \
			__asm__(instruction "w %w2, %w0; pushfq; popq %1" : "+r"(left), "=r"(flags) : "r"(right) : "cc"); \
	} while (0)

/* The processor itself computes the result and the flags. So even flags that the manual leaves undefined are right. */
static void arithmetic(const struct np_emulation *emulation, struct np_ucontext *ucontext, u64 right)
{
	u64 left = read_register(ucontext, emulation->destination), flags = 0;
	u8 size = emulation->size, operation = emulation->operation;
	if (operation == NP_OPERATION_ADD)
		NP_ARITHMETIC("add");
	else if (operation == NP_OPERATION_SUB)
		NP_ARITHMETIC("sub");
	else if (operation == NP_OPERATION_AND)
		NP_ARITHMETIC("and");
	else if (operation == NP_OPERATION_OR)
		NP_ARITHMETIC("or");
	else if (operation == NP_OPERATION_XOR)
		NP_ARITHMETIC("xor");
	else if (operation == NP_OPERATION_CMP)
		NP_ARITHMETIC("cmp");
	else
		NP_ARITHMETIC("test");
	ucontext->flags = (ucontext->flags & ~NP_STATUS_FLAGS) | (flags & NP_STATUS_FLAGS);
	if (operation != NP_OPERATION_CMP && operation != NP_OPERATION_TEST)
		write_register(ucontext, emulation->destination, size, left);
}

/* Executes the instruction. Yields 0, and changes nothing, if only the processor can execute it. */
static int emulate(const struct np_emulation *emulation, struct np_ucontext *ucontext)
{
	u64 next = emulation->site + emulation->length, value = 0;
	switch (emulation->operation) {
	case NP_OPERATION_NOP:
		break;
	case NP_OPERATION_PUSH:
		if (!np_source(emulation, ucontext, &value) || !np_guarded_store_u64(ucontext->rsp - 8, value))
			return 0;
		ucontext->rsp -= 8;
		break;
	case NP_OPERATION_POP:
		if (!np_guarded_u64(ucontext->rsp, &value))
			return 0;
		ucontext->rsp += 8;
		write_register(ucontext, emulation->destination, 8, value); /* this comes last, because the register may be rsp */
		break;
	case NP_OPERATION_LEAVE:
		if (!np_guarded_u64(ucontext->rbp, &value))
			return 0;
		ucontext->rsp = ucontext->rbp + 8;
		ucontext->rbp = value;
		break;
	case NP_OPERATION_CALL:
		if (!np_source(emulation, ucontext, &value) || !is_user_address(value) ||
		    !np_guarded_store_u64(ucontext->rsp - 8, next))
			return 0;
		ucontext->rsp -= 8;
		next = value;
		break;
	case NP_OPERATION_JUMP:
		if (!np_source(emulation, ucontext, &value) || !is_user_address(value))
			return 0;
		next = value;
		break;
	case NP_OPERATION_BRANCH:
		if (is_taken(emulation, ucontext)) {
			np_fire(&emulation->fires_taken, ucontext);
			next = emulation->immediate;
		}
		break;
	case NP_OPERATION_RETURN:
		if (!np_guarded_u64(ucontext->rsp, &value) || !is_user_address(value))
			return 0;
		ucontext->rsp += 8 + emulation->immediate;
		next = value;
		break;
	case NP_OPERATION_MOVE:
		np_source(emulation, ucontext, &value);
		write_register(ucontext, emulation->destination, emulation->size, value);
		break;
	case NP_OPERATION_LEA:
		write_register(ucontext, emulation->destination, emulation->size, memory_address(emulation, ucontext));
		break;
	case NP_OPERATION_OTHER:
		return 0;
	default:
		np_source(emulation, ucontext, &value);
		arithmetic(emulation, ucontext, value);
	}
	ucontext->rip = next;
	return 1;
}

NP_SIGNAL int np_emulate(const struct np_emulation *emulation, void *ucontext)
{
	return !(emulation->flags & NP_EMULATION_STACK_OF_CALLS && np_shadow_stack()) && emulate(emulation, ucontext);
}

/* An alternate stack must have room for this handler. If something may fault, it must also have room for a second
 * frame of the same size. */
static int has_room(const struct np_emulation *emulation, const struct np_ucontext *ucontext)
{
	u64 room = (u64)ucontext - ucontext->stack, needed = NP_AGENT_STACK;
	if (room >= ucontext->stack_bytes)
		return 1; /* this is the program's own stack */
	if (emulation->flags & NP_EMULATION_CALLS)
		needed += NP_HANDLER_STACK;
	if (emulation->flags & (NP_EMULATION_CALLS | NP_EMULATION_TOUCHES_MEMORY))
		needed += ucontext->stack_bytes - room;
	return room >= needed;
}

static int may_run_here(const struct np_emulation *emulation, const struct np_ucontext *ucontext)
{
	const struct np_thread_table *table = (const struct np_thread_table *)np_header.table;
	return np_may_call() && np_load_once(table->magic) == NP_MAGIC && has_room(emulation, ucontext) &&
	       !(emulation->flags & NP_EMULATION_STACK_OF_CALLS && np_shadow_stack());
}

/* If the destination of an indirect jump cannot be read, the jump faults, so control does not leave the function. */
static int leaves(const struct np_emulation *emulation, const struct np_ucontext *ucontext)
{
	const struct np_range *inside = (const struct np_range *)(emulation + 1);
	u64 target;
	if (!np_source(emulation, ucontext, &target))
		return 0;
	for (u32 index = 0; index < emulation->inside_count; index++)
		if (target - inside[index].start < inside[index].end - inside[index].start)
			return 0;
	return 1;
}

int np_at_site(const struct np_emulation *emulation, struct np_ucontext *ucontext)
{
	if (!may_run_here(emulation, ucontext)) {
		ucontext->rip = np_place(&emulation->detour);
		return 0;
	}
	np_fire(&emulation->fires, ucontext);
	if (emulation->fires_leaving && leaves(emulation, ucontext))
		np_fire(&emulation->fires_leaving, ucontext);
	if (!(emulation->flags & NP_EMULATION_STEPS) && emulate(emulation, ucontext))
		return 1;
	ucontext->rip = np_place(&emulation->copy);
	if (emulation->flags & NP_EMULATION_STEPS)
		np_begin_step(emulation, ucontext);
	return 0;
}
