/* Calls by `int $0x80` that change the signal mask or a signal's action, as 32-bit programs make them.
 *
 * Arguments are in ebx, ecx, edx and esi. What they point to is smaller:
 *
 *     rt_sigprocmask   the mask is the same: two words, in the order of one of 64 bits
 *     sigprocmask      one word of the mask; the other signals stay as they are
 *     rt_sigaction     handler, flags, restorer, two words of the mask
 *     sigaction        handler, one word of the mask, flags, restorer
 *
 * So the call is made as the one of 64 bits with copies of these, by the same shims (shims.c). Memory of the program is
 * tested by calls that change nothing, as there.
 *
 * The kernel runs a handler that was set by such a call in 32-bit mode, and only such a call can say so. A program of
 * 64 bits has no such code, so a handler for one of our signals is left to the kernel. That of another signal may
 * block ours meanwhile: we have no traps in 32-bit code. */
#include "chain.h"
#include "shims.h"
#include "syscalls.h"

enum { NP_SIGACTION_32 = 67, NP_SIGPROCMASK_32 = 126, NP_RT_SIGACTION_32 = 174, NP_RT_SIGPROCMASK_32 = 175 };

/* Where the parts of an action are, in words. */
struct np_small_action {
	u8 flags, restorer, mask, words;
};
static const struct np_small_action action_of_rt = { 1, 2, 3, 5 };
static const struct np_small_action action_of_old = { 2, 3, 1, 4 };

static i64 interrupt4(u64 number, u64 a, u64 b, u64 c, u64 d)
{
	i64 result;
	/* Older kernels do not keep r8 to r11. */
	__asm__ volatile("int $0x80"
		: "=a"(result)
		: "0"(number), "b"(a), "c"(b), "d"(c), "S"(d)
		: "r8", "r9", "r10", "r11", "memory");
	return result;
}

static u64 shim_sigprocmask(struct np_registers *wide)
{
	u64 set_address = wide->rsi, old_address = wide->rdx, set = 0, old = 0, others = 0;
	if (set_address) {
		/* The kernel looks at `how` after it has read the mask. */
		if (wide->rdi > NP_SIG_SETMASK ||
		    interrupt4(NP_SIGPROCMASK_32, NP_SIG_SETMASK + 1, set_address, 0, 0) == -NP_EFAULT)
			return 0;
		set = *(volatile u32 *)set_address;
		if (wide->rdi == NP_SIG_SETMASK &&
		    np_syscall4(NP_SYS_RT_SIGPROCMASK, NP_SIG_BLOCK, 0, (u64)&others, 8) == 0)
			set |= others >> 32 << 32;
	}
	i64 written = old_address ? interrupt4(NP_SIGPROCMASK_32, NP_SIG_BLOCK, 0, old_address, 0) : 0;
	wide->rsi = set_address ? (u64)&set : 0;
	wide->rdx = (u64)&old;
	wide->r10 = sizeof(set);
	if (!np_shim_sigprocmask(wide))
		return 0;
	/* As in the kernel, the mask has changed although the old one cannot be told. */
	if (written != 0)
		wide->rax = (u64)written;
	else if (old_address)
		*(volatile u32 *)old_address = (u32)old;
	return 1;
}

static u64 shim_sigaction(struct np_registers *wide, u64 number, const struct np_small_action *small)
{
	const struct np_control *control = (const struct np_control *)np_header.control;
	u64 new_address = wide->rsi, old_address = wide->rdx;
	int slot = np_slot_of(wide->rdi), has_two_words = small->words == action_of_rt.words;
	struct np_sigaction new = { 0, 0, 0, 0 }, old = { 0, 0, 0, 0 };
	if (slot < 0 || !(control->action_mask & 1u << slot) || (has_two_words && wide->r10 != 8))
		return 0;
	if (new_address) {
		/* Signal 0 has no action. The kernel finds this out after it has read the new action. */
		if (interrupt4(number, 0, new_address, 0, 8) == -NP_EFAULT)
			return 0;
		const volatile u32 *words = (const volatile u32 *)new_address;
		new.handler = words[0];
		new.flags = words[small->flags];
		new.restorer = words[small->restorer];
		new.mask = words[small->mask] | (has_two_words ? (u64)words[small->mask + 1] << 32 : 0);
		if (new.handler > NP_SIG_IGN)
			return 0;
	}
	i64 written = old_address ? interrupt4(number, wide->rdi, 0, old_address, 8) : 0;
	wide->rsi = new_address ? (u64)&new : 0;
	wide->rdx = (u64)&old;
	wide->r10 = sizeof(new.mask);
	if (!np_shim_sigaction(wide))
		return 0;
	if (written != 0) {
		wide->rax = (u64)written;
	} else if (old_address) {
		volatile u32 *words = (volatile u32 *)old_address;
		words[0] = (u32)old.handler;
		words[small->flags] = (u32)old.flags;
		words[small->restorer] = (u32)old.restorer;
		words[small->mask] = (u32)old.mask;
		if (has_two_words)
			words[small->mask + 1] = (u32)(old.mask >> 32);
	}
	return 1;
}

u64 np_shim_interrupt(struct np_registers *registers)
{
	struct np_registers wide = *registers;
	u64 made = 0, number = (u32)registers->rax;
	wide.rdi = (u32)registers->rbx;
	wide.rsi = (u32)registers->rcx;
	wide.rdx = (u32)registers->rdx;
	wide.r10 = (u32)registers->rsi;
	switch (number) {
	case NP_RT_SIGPROCMASK_32:
		made = np_shim_sigprocmask(&wide);
		break;
	case NP_SIGPROCMASK_32:
		made = shim_sigprocmask(&wide);
		break;
	case NP_RT_SIGACTION_32:
		made = shim_sigaction(&wide, number, &action_of_rt);
		break;
	case NP_SIGACTION_32:
		made = shim_sigaction(&wide, number, &action_of_old);
		break;
	}
	if (made)
		registers->rax = wide.rax;
	return made;
}
