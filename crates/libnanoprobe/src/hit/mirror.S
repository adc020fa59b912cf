/* np_jprobe_call: calls the mirror with the arguments of the function that was hit.
 *
 *     rdi   the function           rsi   struct np_regs at the hit
 *     rdx   where the stack pointer is left for np_jprobe_leave
 *     rcx   how many bytes of arguments there are on the stack; the rest of NP_JPROBE_STACK bytes is zero
 *
 * The SIMD registers still have their values from the hit: np_simd_save does not change them, and no code between
 * it and this uses them. The arguments on the stack are copied, so the mirror may change them. If the copying
 * faults, because a page was unmapped a moment ago, np_hit_fault makes the thread continue at np_jprobe_cut.
 *
 *     rbp    ->  saved rbp, above the return address
 *                rbx r12 r13 r14 r15, 8 bytes
 *                NP_JPROBE_STACK bytes of arguments
 *     rsp    ->  (aligned to 16, as at any call)
 */
	.section np_hit_path, "ax", @progbits

	.globl	np_jprobe_call
	.hidden	np_jprobe_call
	.type	np_jprobe_call, @function
np_jprobe_call:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	subq	$(512 + 8), %rsp
	movq	%rsp, (%rdx)
	movq	136(%rsi), %rdx         /* of the program */
	movq	%rdi, %r11
	movq	%rsi, %rbx
	leaq	8(%rdx), %rsi
	movq	%rsp, %rdi
	cmpl	$512, %ecx
	jne	4f
	movl	$64, %ecx
	.globl	np_jprobe_copy
	.hidden	np_jprobe_copy
np_jprobe_copy:
	rep	movsq
3:
	movq	112(%rbx), %rdi
	movq	104(%rbx), %rsi
	movq	96(%rbx), %rdx
	movq	88(%rbx), %rcx
	movq	80(%rbx), %rax
	movq	72(%rbx), %r8
	movq	64(%rbx), %r9
	movq	56(%rbx), %r10
	call	*%r11
1:	leaq	-40(%rbp), %rsp
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	.cfi_remember_state
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_restore_state
	/* Only a part of the arguments can be read: the part in the return address's page. */
4:	movl	$512, %r8d
	subl	%ecx, %r8d
	rep	movsb
	movl	%r8d, %ecx
	xorl	%eax, %eax
	rep	stosb
	jmp	3b
	/* rcx is the number of quadwords that were not copied. */
	.globl	np_jprobe_cut
	.hidden	np_jprobe_cut
np_jprobe_cut:
	xorl	%eax, %eax
	rep	stosq
	jmp	3b
	.cfi_endproc
	.size	np_jprobe_call, . - np_jprobe_call

	/* Leaves the mirror. rdi: the stack pointer that np_jprobe_call has stored. From here on everything is as if the
	 * mirror had returned.
	 *
	 * The processor's return predictor holds two calls that will never return: that of np_jprobe_return, on top, and
	 * that of the mirror. If both stayed, the processor would mispredict all later returns of the callers. So two
	 * `ret`s remove them: the first is mispredicted, the second is predicted correctly. */
	.globl	np_jprobe_leave
	.hidden	np_jprobe_leave
	.type	np_jprobe_leave, @function
np_jprobe_leave:
	movq	%rdi, %rsp
	leaq	(512 + 8 + 40)(%rsp), %rbp
	cld
	leaq	1b(%rip), %rax
	pushq	%rax
	leaq	2f(%rip), %rax
	pushq	%rax
	ret
2:	ret
	.size	np_jprobe_leave, . - np_jprobe_leave

	.section .note.GNU-stack, "", @progbits
