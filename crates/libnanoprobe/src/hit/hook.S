/* np_hook_call: calls a replacement on an aligned stack, with copies of the arguments that are on the stack.
 * Afterwards all registers have their old values, except those in which the replacement returns something.
 *
 * The hook's stub jumps here, from the function's entry:
 *
 *     push rbp; mov rbp, rsp; push r11; mov r11, hook; jmp [r11 + 8]
 *
 *     rbp + 8    the return address: to __builtin_return_address(1) of the replacement, and to whoever unwinds, this is a
 *                function with a frame, called by the function's caller
 *     rbp        rbp
 *     rbp - 8    r11
 *     rbp - 16   struct np_hit_hook
 *     rbp - 168  struct np_regs
 *     rsp + 512  xmm0-15
 *     rsp        the arguments: NP_HOOK_STACK bytes
 *
 * This is not in the section of the hit path, since a thread that is here is in no handler.
 */
	.set	REGS, -168
	.text
	.globl	np_hook_call
	.hidden	np_hook_call
	.type	np_hook_call, @function
	.p2align 4
np_hook_call:
	.cfi_startproc
	.cfi_def_cfa %rbp, 16
	.cfi_offset %rbp, -16
	leaq	(REGS - 768)(%rbp), %rsp
	andq	$-16, %rsp
	movq	%r11, -16(%rbp)
	movq	%r15, REGS(%rbp)
	movq	%r14, (REGS + 8)(%rbp)
	movq	%r13, (REGS + 16)(%rbp)
	movq	%r12, (REGS + 24)(%rbp)
	movq	%rbx, (REGS + 40)(%rbp)
	movq	%r10, (REGS + 56)(%rbp)
	movq	%r9, (REGS + 64)(%rbp)
	movq	%r8, (REGS + 72)(%rbp)
	movq	%rax, (REGS + 80)(%rbp)
	movq	%rcx, (REGS + 88)(%rbp)
	movq	%rdx, (REGS + 96)(%rbp)
	movq	%rsi, (REGS + 104)(%rbp)
	movq	%rdi, (REGS + 112)(%rbp)
	movq	(%rbp), %rax
	movq	%rax, (REGS + 32)(%rbp)
	movq	-8(%rbp), %rax
	movq	%rax, (REGS + 48)(%rbp)
	movq	8(%rbp), %rax
	movq	%rax, (REGS + 120)(%rbp)
	movq	$0x202, (REGS + 128)(%rbp)
	leaq	8(%rbp), %rax
	movq	%rax, (REGS + 136)(%rbp)
	.irp	number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	movaps	%xmm\number, (512 + 16 * \number)(%rsp)
	.endr
	movq	%rsp, %rdi
	leaq	16(%rbp), %rsi
	call	np_hook_arguments
	movq	(REGS + 56)(%rbp), %r10
	movq	(REGS + 64)(%rbp), %r9
	movq	(REGS + 72)(%rbp), %r8
	movq	(REGS + 80)(%rbp), %rax
	movq	(REGS + 88)(%rbp), %rcx
	movq	(REGS + 96)(%rbp), %rdx
	movq	(REGS + 104)(%rbp), %rsi
	movq	(REGS + 112)(%rbp), %rdi
	movq	-16(%rbp), %r11
	call	*(%r11)
	movq	%rdx, %rcx
	movq	%rax, %rdx
	leaq	REGS(%rbp), %rsi
	movq	-16(%rbp), %rdi
	call	np_hook_returned
	testl	$4, %eax
	jz	1f
	movaps	512(%rsp), %xmm0
	movaps	528(%rsp), %xmm1
1:
	.irp	number, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	movaps	(512 + 16 * \number)(%rsp), %xmm\number
	.endr
	movq	(REGS + 32)(%rbp), %rax
	movq	%rax, (%rbp)
	movq	(REGS + 48)(%rbp), %rax
	movq	%rax, -8(%rbp)
	movq	REGS(%rbp), %r15
	movq	(REGS + 8)(%rbp), %r14
	movq	(REGS + 16)(%rbp), %r13
	movq	(REGS + 24)(%rbp), %r12
	movq	(REGS + 40)(%rbp), %rbx
	movq	(REGS + 56)(%rbp), %r10
	movq	(REGS + 64)(%rbp), %r9
	movq	(REGS + 72)(%rbp), %r8
	movq	(REGS + 80)(%rbp), %rax
	movq	(REGS + 88)(%rbp), %rcx
	movq	(REGS + 96)(%rbp), %rdx
	movq	(REGS + 104)(%rbp), %rsi
	movq	(REGS + 112)(%rbp), %rdi
	leaq	-8(%rbp), %rsp
	popq	%r11
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	np_hook_call, . - np_hook_call

	.section .note.GNU-stack, "", @progbits
