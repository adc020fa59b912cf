/* np_hit_returned_stub: a function has returned to the agent's thunk, and a stub of its site has come here.
 *
 *     rax    the site
 *     rsp -> flags (lahf, seto)          struct np_frame of agent/contract.h
 *            r15
 *            rax
 *            the agent's instance        24
 *            the real return address     32
 *     slot   the thunk's address         40; the program's rsp is slot + 8
 *
 * Saves all general registers as struct np_regs below that, calls np_hit_returned, and leaves by the agent, which restores
 * the frame: so what a handler has changed of rax, r15 and the flags is put there.
 */
	.section np_hit_path, "ax", @progbits

	.globl	np_hit_returned_stub
	.hidden	np_hit_returned_stub
	.type	np_hit_returned_stub, @function
np_hit_returned_stub:
	subq	$24, %rsp               /* rip, rflags, rsp */
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	pushq	%rcx
	pushq	(24 + 32 + 16)(%rsp)    /* rax */
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	(136 + 8)(%rsp)         /* r15 */
	movq	%rsp, %rbx
	movq	%rax, %rdi
	/* Flags: those that lahf does not have are as they are. */
	cld
	pushfq
	popq	%rcx
	andq	$~0x8d5, %rcx
	movzwl	144(%rbx), %eax
	movzbl	%ah, %edx
	andl	$0xd5, %edx
	orq	%rdx, %rcx
	movzbl	%al, %eax
	shll	$11, %eax
	orq	%rax, %rcx
	movq	%rcx, 128(%rbx)
	movq	(144 + 32)(%rbx), %rax  /* the real return address */
	movq	%rax, 120(%rbx)
	leaq	(144 + 48)(%rbx), %rax
	movq	%rax, 136(%rbx)
	movq	%rbx, %rsi
	movq	(144 + 24)(%rbx), %rdx
	andq	$-16, %rsp
	call	np_hit_returned
	movq	%rbx, %rsp
	movq	%rax, %r15
	/* The frame. */
	movq	128(%rsp), %rcx
	movl	%ecx, %eax
	shll	$8, %eax
	shrl	$11, %ecx
	andl	$1, %ecx
	movb	%cl, %al
	movzwl	%ax, %eax
	movq	%rax, 144(%rsp)
	movq	(%rsp), %rax
	movq	%rax, (144 + 8)(%rsp)
	movq	80(%rsp), %rax
	movq	%rax, (144 + 16)(%rsp)
	leaq	8(%rsp), %rsp
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	leaq	8(%rsp), %rsp
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	leaq	24(%rsp), %rsp
	leaq	np_hit_returns(%rip), %rax
	testq	%r15, %r15
	jz	1f
	jmp	*8(%rax)
1:	jmp	*16(%rax)
	.size	np_hit_returned_stub, . - np_hit_returned_stub

	.section .note.GNU-stack, "", @progbits
