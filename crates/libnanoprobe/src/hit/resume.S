/* np_resume: the program continues with every register as a handler left it, including the stack pointer and rip.
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
 * The copy is needed since S may be anywhere: near the registers, above them, on another stack. A signal in the
 * middle of this destroys nothing: rsp is never above memory that is still to be read, nor above S - 288 once the
 * copy is written.
 *
 * This `ret` has no matching call, which costs one misprediction. With a shadow stack (CET) the processor would
 * refuse it, so handlers may not change rip there (NP_ERROR_UNSUPPORTED).
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
	/* Copies from the lowest word up, since the copy may overlap the registers from below. rsp moves first. */
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

	/* Reached from np_resume when np_hit_pair (returned.S) has changed the struct np_regs at rsp. */
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
	sahf                            /* restores all other flags; no instruction from here on changes a flag */
	.irp	register, r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi
	popq	%\register
	.endr
	leaq	32(%rsp), %rsp          /* the slot is free for the call */
	jmp	*-24(%rsp)
	.size	np_resume_pair, . - np_resume_pair

	.section .note.GNU-stack, "", @progbits
