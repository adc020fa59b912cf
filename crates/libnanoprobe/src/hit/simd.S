/* SIMD registers around handlers.
 *
 * Handlers are ordinary code: they may use every SIMD register that the ABI does not make them keep, which is all of
 * them. xsave would do, but takes 60 to 90 ns. Nearly always no more than the sixteen xmm registers are live, and the
 * processor knows: xgetbv with ecx = 1 tells which parts of the state are not in their initial state (Intel SDM volume 1,
 * 13.6, XINUSE).
 *
 *     area    0   what was live          4   mxcsr
 *            64   xmm, ymm or zmm 0-15 (or 0-31), 16, 32 or 64 bytes each, up to 2112
 *          2112   k0-k7, up to 2176
 *          2176   x87 (fnsave), 108 bytes
 *
 * What was in its initial state before the handlers must be so behind them: the upper halves by vzeroupper, zmm16-31
 * and k0-k7 one by one, when they are in use now. AMX tiles are not saved: a handler that uses them keeps them.
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
	testb	$0xe0, %al
	jnz	3f
	testb	$4, %al
	jnz	2f
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	movups	%xmm\n, 64 + 16 * \n(%rdi)
	.endr
	jmp	4f
2:	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	vmovups	%ymm\n, 64 + 32 * \n(%rdi)
	.endr
	vzeroupper
	jmp	4f
3:	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	vmovups	%zmm\n, 64 + 64 * \n(%rdi)
	.endr
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7
	kmovq	%k\n, 2112 + 8 * \n(%rdi)
	.endr
	vzeroupper
4:	testb	$1, %al
	jz	5f
	fnsave	2176(%rdi)
5:	ret
	.size	np_simd_save, . - np_simd_save

	.globl	np_simd_restore
	.hidden	np_simd_restore
	.type	np_simd_restore, @function
	/* rdi: area, esi: features */
np_simd_restore:
	movl	(%rdi), %r8d
	testb	$0xe0, %r8b
	jnz	3f
	testb	$2, %sil
	jz	2f
	vzeroupper
	testb	$4, %sil
	jz	1f
	/* Saved were at most the lower halves of 0-15: the rest was in its initial state. */
	movl	$1, %ecx
	movl	$0xe0, %eax
	testb	$1, %sil
	jz	6f
	xgetbv
6:	testb	$0xa0, %al
	jz	1f
	.irp	n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	vpxord	%zmm\n, %zmm\n, %zmm\n
	.endr
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7
	kxorq	%k\n, %k\n, %k\n
	.endr
1:	testb	$4, %r8b
	jz	2f
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	vmovups	64 + 32 * \n(%rdi), %ymm\n
	.endr
	jmp	4f
2:	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	movups	64 + 16 * \n(%rdi), %xmm\n
	.endr
	jmp	4f
3:	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	vmovups	64 + 64 * \n(%rdi), %zmm\n
	.endr
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7
	kmovq	2112 + 8 * \n(%rdi), %k\n
	.endr
4:	testb	$1, %r8b
	jz	5f
	frstor	2176(%rdi)
5:	ldmxcsr	4(%rdi)
	ret
	.size	np_simd_restore, . - np_simd_restore

	.section .note.GNU-stack, "", @progbits
