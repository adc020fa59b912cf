/* np_watched: a thread that has met a watchpoint continues here, with its registers saved in its block.
 *
 *     rsp + 0     struct np_regs     np_watched_run fills both in
 *     rsp + 144   rip, cs, rflags, rsp, ss
 *
 * Only iretq loads rip and rsp at once, writes no memory, and sets the resume flag. Without this flag an
 * instruction that is watched for execution would be met again before it is executed.
 */
	.section np_hit_path, "ax", @progbits
	.globl	np_watched
	.hidden	np_watched
	.type	np_watched, @function
np_watched:
	movq	%rsp, %rdi
	call	np_watched_run
	.irp	register, r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi
	popq	%\register
	.endr
	addq	$24, %rsp
	iretq
	.size	np_watched, . - np_watched

	.section .note.GNU-stack, "", @progbits
