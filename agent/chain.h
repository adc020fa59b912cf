/* Signals that are not ours: see chain.c. */
#ifndef NANOPROBE_CHAIN_H
#define NANOPROBE_CHAIN_H

#include "redirects.h"

/* The fields of the kernel's siginfo and ucontext that we use. */
struct np_siginfo {
	i32 signal;
	i32 error;
	i32 code;               /* > 0: raised by an instruction or the kernel; else sent by a process */
	i32 padding;
	u64 address;
};
struct np_ucontext {
	u64 before[2];
	u64 stack;              /* the thread's alternate stack: address, */
	u64 stack_flags;
	u64 stack_bytes;        /* size; 0: it has none */
	u64 r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip;
	u64 flags;
	u64 segments, error, trap_number;
	u64 behind[11];
	u64 mask;               /* the mask of the interrupted code */
};
_Static_assert(__builtin_offsetof(struct np_ucontext, r8) == 40, "uc_mcontext");
_Static_assert(__builtin_offsetof(struct np_ucontext, mask) == 296, "uc_sigmask");

#define NP_FLAG_TRAP 0x100UL

/* The trap number of an int3. */
enum { NP_TRAP_NUMBER_INT3 = 3 };

enum { NP_SIGILL = 4, NP_SIGTRAP = 5, NP_SIGBUS = 7, NP_SIGFPE = 8, NP_SIGSEGV = 11, NP_SIGNALS = 64 };
enum { NP_SIG_DFL = 0, NP_SIG_IGN = 1 };
enum { NP_SIG_BLOCK = 0, NP_SIG_UNBLOCK = 1, NP_SIG_SETMASK = 2 };
/* siginfo.si_code of a signal that was sent to a thread: tgkill. */
enum { NP_SI_TKILL = -6 };

/* The index of a signal in np_program_actions(); -1: the agent does not replace its action. */
NP_INLINE i32 np_slot_of(u64 signal)
{
	return signal == NP_SIGTRAP ? NP_SLOT_TRAP : signal == NP_SIGSEGV ? NP_SLOT_SEGV :
	       signal == NP_SIGBUS ? NP_SLOT_BUS : signal == NP_SIGILL ? NP_SLOT_ILL :
	       signal == NP_SIGFPE ? NP_SLOT_FPE : -1;
}

/* A signal as a bit of a mask. */
NP_INLINE u64 np_bit(u64 signal)
{
	return 1UL << (signal - 1);
}

/* The shadow stack pointer; 0 if there is no shadow stack, since the instruction is then a nop. */
NP_INLINE u64 np_shadow_stack(void)
{
	u64 pointer = 0;
	__asm__ volatile("rdsspq %0" : "+r"(pointer));
	return pointer;
}

/* Carries out the program's own action for `signal`. */
void np_chain(enum np_signal_slot slot, i32 signal, struct np_siginfo *information, struct np_ucontext *ucontext);

#endif
