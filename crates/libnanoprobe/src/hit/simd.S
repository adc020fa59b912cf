/* SIMD registers around handlers.
 *
 * Handlers are ordinary code, and the ABI lets them change all SIMD registers. xsave could save these, but takes
 * 60 to 90 ns. Nearly always only some parts are live, and the processor knows which: xgetbv with ecx = 1 yields
 * the parts that are not in their initial state (Intel SDM volume 1, 13.6, XINUSE). Each part is saved by itself,
 * since programs use some parts without others. For example, the C library's string functions leave zmm16-31 and
 * k0-k7 in use, but not the upper halves of registers 0-15.
 *
 *     area    0   what was live          4   mxcsr          8   mxcsr behind the handlers
 *            64   xmm, ymm or zmm 0-15, 16, 32 or 64 bytes each, up to 1088       live: bits 1, 2, 6
 *          1088   zmm16-31, up to 2112                                            bit 7
 *          2112   k0-k7, up to 2176                                               bit 5
 *          2176   x87 (fxsave, with xmm0-15 and mxcsr), up to 2688                bit 0
 *
 * A part that was in its initial state before the handlers must be so after them. vzeroupper does this for the
 * upper halves. For the other parts of np_simd_initial, if they are in use now, xrstor loads the initial state.
 * After that they are not in use any more. AMX tiles are not saved: a handler that uses them must restore them.
 *
 * In every thread that ever took a signal, x87 counts as in use, since the kernel loads it from the signal's
 * frame, though its values are initial. Such an x87 unit is treated as not in use, so it is not in use any more at
 * the next hit.
 *
 * Saving x87 by fxsave and fxrstor takes 42 ns; fnsave and frstor take 96, and xsavec and xrstor of this part 69.
 * fninit, which fnsave includes, takes another 20. It is executed only if a handler could notice its absence: if a
 * register is in use, or the control word is not what the ABI demands.
 *
 * Some handlers provably touch only xmm0-15 and mxcsr, by instructions that keep the upper halves. For these the
 * processor is not asked which parts are live: the caller passes NP_SIMD_XMM instead of the features, and no part
 * counts as live.
 *
 * ldmxcsr takes as long as saving and restoring all of xmm0-15, and hardly any handler changes mxcsr. So mxcsr is
 * compared first.
 */
	.section np_hit_path, "ax", @progbits

	.globl	np_simd_save
	.hidden	np_simd_save
	.type	np_simd_save, @function
	/* rdi: area, esi: features, edx: what counts as live when the processor cannot tell */
np_simd_save:
	movl	%edx, %eax
	testb	$1, %sil
	jz	1f
	movl	$1, %ecx
	xgetbv
1:	movl	%eax, (%rdi)
	stmxcsr	4(%rdi)
	testb	$0x44, %al
	jnz	2f
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	movups	%xmm\n, 64 + 16 * \n(%rdi)
	.endr
	jmp	5f
2:	testb	$0x40, %al
	jnz	3f
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	vmovups	%ymm\n, 64 + 32 * \n(%rdi)
	.endr
	jmp	4f
3:	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	vmovups	%zmm\n, 64 + 64 * \n(%rdi)
	.endr
4:	vzeroupper
5:	testb	$0x80, %al
	jz	6f
	.irp	n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	vmovups	%zmm\n, 64 + 64 * \n(%rdi)
	.endr
6:	testb	$0x20, %al
	jz	7f
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7
	kmovq	%k\n, 2112 + 8 * \n(%rdi)
	.endr
7:	testb	$1, %al
	jnz	8f
	ret
8:	fxsave64 2176(%rdi)
	testb	$1, %sil
	jz	9f
	/* Control word 0x37f; status, tags, opcode, addresses and all registers 0: initial. */
	movq	2176(%rdi), %rax
	xorq	$0x37f, %rax
	orq	(2176 + 8)(%rdi), %rax
	orq	(2176 + 16)(%rdi), %rax
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7
	orq	(2176 + 32 + 16 * \n)(%rdi), %rax
	movzwl	(2176 + 40 + 16 * \n)(%rdi), %ecx
	orq	%rcx, %rax
	.endr
	testq	%rax, %rax
	jnz	9f
	andl	$~1, (%rdi)
	ret
9:	cmpb	$0, (2176 + 4)(%rdi)    /* no register in use */
	jne	10f
	cmpw	$0x37f, 2176(%rdi)      /* control word: as at the start of any program */
	jne	10f
	ret
10:	fninit
	ret
	.size	np_simd_save, . - np_simd_save

	.globl	np_simd_restore
	.hidden	np_simd_restore
	.type	np_simd_restore, @function
	/* rdi: area, esi: features */
np_simd_restore:
	movl	(%rdi), %r8d
	testb	$0x44, %r8b
	jnz	2f
	testb	$2, %sil
	jz	1f
	vzeroupper
1:	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	movups	64 + 16 * \n(%rdi), %xmm\n
	.endr
	jmp	4f
2:	testb	$0x40, %r8b
	jnz	3f
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	vmovups	64 + 32 * \n(%rdi), %ymm\n
	.endr
	jmp	4f
3:	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	vmovups	64 + 64 * \n(%rdi), %zmm\n
	.endr
	/* Parts that were not in use, and may be now. Not done with NP_SIMD_XMM. */
4:	testb	$8, %sil
	jnz	7f
	movl	%r8d, %r9d
	notl	%r9d
	andl	np_simd_initial(%rip), %r9d
	jnz	9f
5:	testb	$0x80, %r8b
	jz	6f
	.irp	n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	vmovups	64 + 64 * \n(%rdi), %zmm\n
	.endr
6:	testb	$0x20, %r8b
	jz	7f
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7
	kmovq	2112 + 8 * \n(%rdi), %k\n
	.endr
7:	stmxcsr	8(%rdi)
	movl	8(%rdi), %eax
	cmpl	4(%rdi), %eax
	jne	11f
8:	testb	$1, %r8b
	jnz	12f
	ret
9:	testb	$1, %sil
	jz	10f
	movl	$1, %ecx
	xgetbv
	andl	%eax, %r9d
10:	testl	%r9d, %r9d
	jz	5b
	movl	%r9d, %eax
	xorl	%edx, %edx
	xrstor64	initial(%rip)
	jmp	5b
11:	ldmxcsr	4(%rdi)
	jmp	8b
	/* This loads xmm0-15 and mxcsr, too, with the values that they have already. */
12:	fxrstor64 2176(%rdi)
	ret
	.size	np_simd_restore, . - np_simd_restore

	.section .rodata.np_simd, "a", @progbits
	.p2align 6
	/* The area for xrstor in which every part is initial. */
initial:
	.fill	576

	.section .note.GNU-stack, "", @progbits
