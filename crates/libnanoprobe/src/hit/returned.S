/* Replaced return addresses. The processor still predicts the returns, since calls and returns stay in pairs.
 *
 * The function's return address becomes that of a thunk (agent/returns.h). If the address were only written into
 * the slot, the function's `ret` would match no `call`, which costs twenty cycles. So a call stands in front of
 * each thunk, and the thread enters the rest of the function through it. The call pushes the address after itself,
 * which is the thunk, into the slot, which has this value already.
 *
 *     thunk - 4    call [rsp-16]              from np_resume_pair, rsp = slot + 8; there, the copy of the entry's instruction
 *     thunk        mov word [rsp-16], number  the function has returned: rsp = slot + 8
 *                  jmp np_hit_arrive          through a hop: it may be far away
 *
 *     slot + 8  -> the caller's
 *     slot         the return address: the thunk's, until all is done
 *     slot - 8     entry: where the copy is    return: the thunk's number
 *     slot - 16    entry: thunk - 4            both are in the red zone: no signal writes there
 *
 * The processor then expects two returns: for the thunk's call, and for the program's call. The function's `ret`
 * matches the thunk's call, and the `ret` at the end of np_hit_arrive the program's. If a handler changes where
 * the thread continues, or the address was put back just now, the processor mispredicts, and nothing else happens.
 *
 * np_hit_pair checks again that the slot has a thunk. If the address is put back in the few instructions between
 * this check and the call, the call writes the thunk into the slot again. That is as if the address had been put
 * back before it was replaced, since the thunk's instance is armed all the time.
 */
	/* struct np_hit_returns */
	.set	THUNKS, 8
	.set	THUNKS_BYTES, 16
	.set	POOL, 24
	/* struct np_hit_thunks */
	.set	INSTANCES, 4160
	/* struct np_hit_thunk */
	.set	THUNK_ADDRESS, 0
	.set	THUNK_STUB, 16
	.set	THUNK_STATE, 24
	/* struct np_hit_context */
	.set	CONTEXT_CURSOR, 272
	/* struct np_regs, and the slot after it */
	.set	REGS_RIP, 120
	.set	REGS_FLAGS, 128
	.set	REGS_RSP, 136
	.set	SLOT, 144

	.section np_hit_path, "ax", @progbits

	/* rdi: struct np_regs, rsi: the copy. Yields the answer of the hit: 1 for np_resume_pair, or 0 where a pair is
	 * not possible. */
	.globl	np_hit_pair
	.hidden	np_hit_pair
	.type	np_hit_pair, @function
np_hit_pair:
	leaq	SLOT(%rdi), %rax
	cmpq	%rax, REGS_RSP(%rdi)    /* a red zone is in between */
	jne	1f
	movq	(%rax), %rcx
	movq	%rcx, %rax
	subq	np_hit_returns + THUNKS(%rip), %rax
	cmpq	np_hit_returns + THUNKS_BYTES(%rip), %rax
	jae	1f
	/* The address of the call in front of the thunk, which np_resume_pair finds above the low flags. */
	subq	$4, %rcx
	shlq	$16, %rcx
	movzwl	REGS_FLAGS(%rdi), %eax
	orq	%rax, %rcx
	movq	%rcx, REGS_FLAGS(%rdi)
	movq	%rsi, REGS_RSP(%rdi)
	leaq	np_resume_pair(%rip), %rax
	movq	%rax, REGS_RIP(%rdi)
	movl	$1, %eax
	ret
1:	xorl	%eax, %eax
	ret
	.size	np_hit_pair, . - np_hit_pair

	/* rsp = slot + 8; slot - 8: the thunk's number. The struct np_regs ends at the slot. */
	.globl	np_hit_arrive
	.hidden	np_hit_arrive
	.type	np_hit_arrive, @function
np_hit_arrive:
	leaq	-16(%rsp), %rsp
	pushfq
	pushq	%rax                    /* the place of rip */
	.irp	register, rdi, rsi, rdx, rcx, rax, r8, r9, r10, r11, rbx, rbp, r12, r13, r14, r15
	pushq	%\register
	.endr
	movq	%rsp, %rbx
	movzwl	REGS_RSP(%rbx), %r12d
	shlq	$5, %r12
	addq	np_hit_returns + POOL(%rip), %r12
	addq	$INSTANCES, %r12
	movq	THUNK_ADDRESS(%r12), %rax
	movq	%rax, REGS_RIP(%rbx)
	leaq	(SLOT + 8)(%rbx), %rax
	movq	%rax, REGS_RSP(%rbx)
	movq	THUNK_STUB(%r12), %rdi
	movq	%rbx, %rsi
	movq	%r12, %rdx
	cld
	andq	$-16, %rsp
	call	np_hit_returned
	movq	%rbx, %rsp
	testq	%rax, %rax
	jz	1f
	movq	%r12, CONTEXT_CURSOR(%rax)
1:	movq	THUNK_ADDRESS(%r12), %rax
	movq	%rax, SLOT(%rsp)
	andl	$-4, THUNK_STATE(%r12)  /* free: nothing of it is read any more */
	testb	$4, (REGS_FLAGS + 1)(%rsp)
	jnz	3f
2:	movzbl	(REGS_FLAGS + 1)(%rsp), %eax
	andb	$8, %al
	addb	$0x78, %al
	movb	REGS_FLAGS(%rsp), %ah
	sahf
	.irp	register, r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi
	popq	%\register
	.endr
	leaq	24(%rsp), %rsp
	ret
	/* Sets the direction flag again, as it was. */
3:	std
	jmp	2b                      /* the additions after the label do not change the direction flag */
	.size	np_hit_arrive, . - np_hit_arrive

	.section .note.GNU-stack, "", @progbits
