/* np_hit: the function that detours call. This is the short way, for nearly all sites: those with one probe, no
 * fault handler and nothing to emulate. All other hits begin anew in np_hit_in_full (hit.c).
 *
 *     rdi        the site (struct np_hit_site)
 *     rsi, rbx   its struct np_regs: all general registers of the program, so none but rbx and rsp need be kept here
 *     rdx        where the instruction's copy is
 *     rsp        aligned to 16 in front of the call
 *
 *     eax        0: the detour restores the registers and goes on; 1: np_resume loads them, rip, rsp and all flags, too
 *
 * This is written by hand: a compiler would save and restore six registers for nothing, which takes a fifth of the
 * whole time. These registers keep their values over the handler's call:
 *
 *     rbp   rsp at the hit        r12   struct np_hit_thread      r13   the site
 *     r14   errno, if it is saved  r15   flags at the hit         on the stack: rdx
 *
 * Memory is read and written in the same order as in hit(), and the same values are compared after the handler.
 * The detour's sahf restores only the arithmetic flags. So np_resume is needed where another flag is, or was, set.
 */
	/* struct np_hit_site */
	.set	SITE_ADDRESS, 0
	.set	SITE_LIST, 8
	/* struct np_hit_list */
	.set	LIST_SAVED, 8
	.set	LIST_CALL, 32
	.set	LIST_ARGUMENT, 40
	.set	LIST_COUNTER, 48
	.set	LIST_ENABLED, 56
	/* struct np_hit_thread */
	.set	THREAD_DEPTH, 0
	.set	THREAD_EPOCH, 8
	.set	THREAD_ERROR, 16
	/* struct np_regs */
	.set	REGS_RIP, 120
	.set	REGS_FLAGS, 128
	.set	REGS_RSP, 136
	/* Direction, trap, alignment check, identification. */
	.set	RARE_FLAGS, 0x400 | 0x100 | 0x40000 | 0x200000
	.set	PAIR, 0x70616972
	/* NP_SIMD_BYTES, then rsp, the function, its argument or answer, and the arguments of np_simd_save. */
	.set	AREA, 2816
	.set	AREA_STACK, AREA
	.set	AREA_CALL, AREA + 8
	.set	AREA_ARGUMENT, AREA + 16
	.set	AREA_FEATURES, AREA + 24
	.set	AREA_BYTES, AREA + 64
	.set	SIMD_XMM, 8
	.set	SAVED_ERRNO, 1

	.section np_hit_path, "ax", @progbits
	.globl	np_hit
	.hidden	np_hit
	.type	np_hit, @function
	.p2align 6
np_hit:
	movq	np_hit_self@gottpoff(%rip), %rax
	movq	%fs:(%rax), %r12
	testq	%r12, %r12
	jz	9f
	cmpq	$0, THREAD_DEPTH(%r12)
	jne	9f
	movq	REGS_RSP(%rsi), %rbp
	movq	%rbp, THREAD_DEPTH(%r12)
	movq	SITE_LIST(%rdi), %r8
	testq	%r8, %r8
	jz	8f
	movq	LIST_ENABLED(%r8), %rax
	cmpl	$0, (%rax)
	je	8f
	movq	%rdi, %r13
	movl	REGS_FLAGS(%rsi), %r15d
	pushq	%rdx
	movq	LIST_COUNTER(%r8), %rax
	incq	(%r12,%rax)
	movq	LIST_ARGUMENT(%r8), %rdi
	cmpq	$0, LIST_SAVED(%r8)
	jne	6f
	call	*LIST_CALL(%r8)
2:	incq	THREAD_EPOCH(%r12)
	movq	$0, THREAD_DEPTH(%r12)
	popq	%rdx
	movq	SITE_ADDRESS(%r13), %rcx
	cmpq	%rcx, REGS_RIP(%rbx)
	jne	4f
	testl	%eax, %eax
	jnz	3f
	cmpq	%rbp, REGS_RSP(%rbx)
	jne	3f
	orl	REGS_FLAGS(%rbx), %r15d
	testl	$RARE_FLAGS, %r15d
	jnz	3f
	ret
3:	cmpl	$PAIR, %eax
	je	5f
	/* If rip is unchanged, the copy of the instruction is executed. */
33:	movq	%rdx, REGS_RIP(%rbx)
4:	movl	$1, %eax
	ret
	/* The only answer other than 0 that is possible here: a return address was replaced. */
5:	cmpq	%rbp, REGS_RSP(%rbx)
	jne	33b
	orl	REGS_FLAGS(%rbx), %r15d
	testl	$RARE_FLAGS, %r15d
	jnz	33b
	movq	%rbx, %rdi
	movq	%rdx, %rsi
	jmp	np_hit_pair
	/* Saves errno around the handler. */
6:	movq	THREAD_ERROR(%r12), %rcx
	movl	(%rcx), %r14d
	movq	LIST_SAVED(%r8), %rax
	cmpq	$SAVED_ERRNO, %rax
	jne	7f
	call	*LIST_CALL(%r8)
1:	movq	THREAD_ERROR(%r12), %rcx
	movl	%r14d, (%rcx)
	jmp	2b
	/* Saves SIMD registers, too. */
7:	movq	LIST_CALL(%r8), %r9
	movq	%rsp, %rcx
	leaq	-AREA_BYTES(%rsp), %rsp
	andq	$-64, %rsp
	movq	%rcx, AREA_STACK(%rsp)
	movq	%r9, AREA_CALL(%rsp)
	movq	%rdi, AREA_ARGUMENT(%rsp)
	movl	$SIMD_XMM, %esi
	xorl	%edx, %edx
	cmpl	%esi, %eax
	je	77f
	movl	np_simd_features(%rip), %esi
	movl	np_simd_live(%rip), %edx
77:	movl	%esi, AREA_FEATURES(%rsp)
	movq	%rsp, %rdi
	call	np_simd_save
	movq	AREA_ARGUMENT(%rsp), %rdi
	movq	%rbx, %rsi
	call	*AREA_CALL(%rsp)
	movl	%eax, AREA_ARGUMENT(%rsp)
	movq	%rsp, %rdi
	movl	AREA_FEATURES(%rsp), %esi
	call	np_simd_restore
	movl	AREA_ARGUMENT(%rsp), %eax
	movq	AREA_STACK(%rsp), %rsp
	jmp	1b
8:	movq	$0, THREAD_DEPTH(%r12)
9:	jmp	np_hit_in_full
	.size	np_hit, . - np_hit

	/* Called for a probe without a pre-handler. */
	.globl	np_hit_nothing
	.hidden	np_hit_nothing
	.type	np_hit_nothing, @function
np_hit_nothing:
	xorl	%eax, %eax
	ret
	.size	np_hit_nothing, . - np_hit_nothing

	.section .note.GNU-stack, "", @progbits
