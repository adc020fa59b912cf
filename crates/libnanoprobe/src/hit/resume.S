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
	je	np_resume_pair
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
	.irp	register, r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi
	popq	%\register
	.endr
	leaq	24(%rsp), %rsp          /* rip, rflags and rsp of the copy */
	popfq
	ret	$128
	.size	np_resume, . - np_resume

	/* From np_resume, with what np_hit_pair (returned.S) has made of the struct np_regs at rsp. */
	.globl	np_resume_pair
	.hidden	np_resume_pair
	.type	np_resume_pair, @function
np_resume_pair:
	movq	128(%rsp), %rax
	movzwl	%ax, %ecx
	shrq	$16, %rax
	movq	%rax, 128(%rsp)
	movzbl	%ch, %eax
	movb	%cl, %ah
	andb	$8, %al                 /* OF */
	addb	$0x78, %al              /* overflows for 8 */
	sahf                            /* all others; no instruction from here on changes any */
	.irp	register, r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi
	popq	%\register
	.endr
	leaq	32(%rsp), %rsp          /* the slot is free for the call */
	jmp	*-24(%rsp)
	.size	np_resume_pair, . - np_resume_pair

	.section .note.GNU-stack, "", @progbits
