/* Signals that are not ours: see chain.c. */
#ifndef NANOPROBE_CHAIN_H
#define NANOPROBE_CHAIN_H

#include "redirects.h"

/* The kernel's siginfo and ucontext, as far as we look. */
struct np_siginfo {
	i32 signal;
	i32 error;
	i32 code;               /* > 0: raised by an instruction or the kernel; else sent by somebody */
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
	u64 behind[14];
	u64 mask;               /* what the interrupted code blocks */
};
_Static_assert(__builtin_offsetof(struct np_ucontext, r8) == 40, "uc_mcontext");
_Static_assert(__builtin_offsetof(struct np_ucontext, mask) == 296, "uc_sigmask");

#define NP_FLAG_TRAP 0x100UL

/* Does for `signal` what the program's own action says. */
void np_chain(enum np_signal_slot slot, i32 signal, struct np_siginfo *information, struct np_ucontext *ucontext);

#endif
