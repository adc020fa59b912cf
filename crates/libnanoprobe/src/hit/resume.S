/* np_resume: the program goes on with every register as a handler left it, the stack pointer and rip, too.
 *
 * rsp points at a struct np_regs (18 words: r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi rip rflags rsp). The
 * last step must load rip and rsp at once, touch no register, and write nothing that the program may use: nothing above
 * S - 128, S being the new stack pointer. `ret 128` does:
 *
 *     S          ->   the program's
 *     S - 128         the red zone, left alone
 *     S - 136         rip            popped by ret, which then adds 128
 *     S - 144         rflags         popped by popf
 *     S - 288         a copy of struct np_regs
 *
 * The copy is needed since S may be anything: near the registers, above them, on another stack. rsp never is above what
 * is still to be read, so a signal in the midst of this destroys nothing. Nor is rsp ever above the new S - 288 once that
 * has been written.
 *
 * The processor's shadow of returns is out of step with this (one misprediction); with a shadow stack in use (CET) it
 * would be refused, which is why handlers may not change rip there (NP_ERROR_UNSUPPORTED).
 */
	.section np_hit_path, "ax", @progbits
	.globl	np_resume
	.hidden	np_resume
	.type	np_resume, @function
np_resume:
	leaq	np_resume_pair(%rip), %rcx
	cmpq	%rcx, 120(%rsp)
	je	np_resume_pair          /* returned.S */
	cld
	movq	%rsp, %rsi              /* from */
	movq	136(%rsi), %rdi
	subq	$288, %rdi              /* to */
	cmpq	%rsp, %rdi
	jae	1f
	/* Downwards: the copy lies below, or overlaps from below. rsp goes first. */
	movq	%rdi, %rsp
	movl	$18, %ecx
	rep	movsq
	jmp	2f
1:	/* Upwards: from the end, since the copy may overlap from above. */
	addq	$136, %rsi
	addq	$136, %rdi
	movl	$18, %ecx
	std
	rep	movsq
	cld
	leaq	8(%rdi), %rsp
2:	movq	128(%rsp), %rax         /* rflags */
	movq	120(%rsp), %rcx         /* rip */
	movq	%rax, 144(%rsp)
	movq	%rcx, 152(%rsp)
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rax
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	leaq	24(%rsp), %rsp          /* rip, rflags and rsp of the copy */
	popfq
	ret	$128
	.size	np_resume, . - np_resume

	.section .note.GNU-stack, "", @progbits
