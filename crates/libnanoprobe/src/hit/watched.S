/* np_watched: where a thread goes on that has met a watchpoint, with its registers in its block.
 *
 *     rsp + 0     struct np_regs     np_watched_run fills both in
 *     rsp + 144   rip, cs, rflags, rsp, ss
 *
 * iretq is the one instruction that loads rip and rsp at once, writes nothing anywhere, and sets the resume flag: without
 * it an instruction that is watched for execution would be met again before it is executed.
 */
	.section np_hit_path, "ax", @progbits
	.globl	np_watched
	.hidden	np_watched
	.type	np_watched, @function
np_watched:
	movq	%rsp, %rdi
	call	np_watched_run
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
	addq	$24, %rsp
	iretq
	.size	np_watched, . - np_watched

	.section .note.GNU-stack, "", @progbits
