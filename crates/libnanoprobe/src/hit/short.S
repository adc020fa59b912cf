/* Return probes by the exits: what nearly every hit does, at the entry and at the rets, where the probe is its site's only one,
 * has no fault handler, no entry handler and no data. Whatever else it is goes the other way, from the beginning
 * (np_retprobe_entry and np_retprobe_exit, retprobe.c), and the order in which things are read and written is theirs.
 *
 * Entries are asked by detours. Exits are called by np_hit's short way alone (dispatch.S), as handlers are, with what it has
 * in registers:
 *
 *     rdi        struct np_hit_entry       rbp   rsp at the hit: the frame
 *     rbx, rsi   struct np_regs            r12   struct np_hit_thread         r13   the site
 *
 * The thread holds a place in its first slot for the probe, and its other slots are free (places.h).
 */
	/* struct np_hit_list */
	.set	LIST_ONLY, 24
	.set	LIST_CALL, 32
	/* struct np_hit_entry */
	.set	ENTRY_ENABLED, 44
	.set	ENTRY_DATA, 48
	/* struct np_hit_calls */
	.set	CALLS_HANDLER, 0
	.set	CALLS_OWNER, 16
	.set	CALLS_INDEX, 56
	.set	CALLS_FURTHEST, 88
	/* struct np_hit_thread */
	.set	THREAD_DEPTH, 0
	.set	THREAD_EPOCH, 8
	.set	THREAD_CALLS, 116
	.set	THREAD_LIFE, 128
	.set	THREAD_COUNTERS, 144
	.set	THREAD_HOME, 0x40338
	.set	THREAD_HOLDS, 0x403c0
	/* struct np_hit_held: four of them */
	.set	HELD_FRAME, 0
	.set	HELD_CALL, 8
	.set	HELD_BYTES, 16
	/* struct np_hit_call */
	.set	CALL_LIFE, 8
	.set	CALL_WORD, 16
	.set	CALL_INSTANCE, 24
	.set	CALL_RETURN_ADDRESS, 32
	.set	CALL_INSTANCE_FRAME, 40
	.set	CALL_DATA, 48
	.set	CALL_HOLD, 60
	.set	CALL_BYTES, 80
	/* struct np_hit_returns */
	.set	THUNKS, 8
	.set	THUNKS_BYTES, 16
	/* struct np_hit_site, struct np_regs */
	.set	SITE_ADDRESS, 0
	.set	SITE_LIST, 8
	.set	REGS_RIP, 120
	.set	REGS_RSP, 136
	.set	BUSY, 1
	.set	QUICK_FRAME, 64
	/* Of a place that is held, or was: WANTED and TAKEN have it, HELD has not. */
	.set	HOLD_LOST, 2

	.section np_hit_path, "ax", @progbits
	/* What np_hit calls at such an entry, where the detour could not ask or was not answered. That it is this, and not
	 * np_retprobe_entry, says what kind of entry it is. */
	.globl	np_retprobe_entry_plain
	.hidden	np_retprobe_entry_plain
	.type	np_retprobe_entry_plain, @function
np_retprobe_entry_plain:
	jmp	np_retprobe_entry
	.size	np_retprobe_entry_plain, . - np_retprobe_entry_plain

	/* What a detour asks in front of everything else, with less saved (crates/patch/src/detour/function.rs): the entry, and all
	 * that np_hit does around it. rdi: the site. 0: done; 1: it is not, and nothing has happened. The detour keeps rax, rcx,
	 * rdx, rsi, rdi, r8 and the flags; QUICK_FRAME above rsp is the frame. */
	.globl	np_retprobe_entry_quick
	.hidden	np_retprobe_entry_quick
	.type	np_retprobe_entry_quick, @function
	.p2align 5
np_retprobe_entry_quick:
	movq	np_hit_self@gottpoff(%rip), %rax
	movq	%fs:(%rax), %rcx
	testq	%rcx, %rcx
	jz	9f
	cmpq	$0, THREAD_DEPTH(%rcx)
	jne	9f
	movq	$1, THREAD_DEPTH(%rcx)
	movq	SITE_LIST(%rdi), %rdx
	testq	%rdx, %rdx
	jz	8f
	leaq	np_retprobe_entry_plain(%rip), %rax
	cmpq	%rax, LIST_CALL(%rdx)
	jne	8f
	movq	LIST_ONLY(%rdx), %rax
	cmpl	$0, ENTRY_ENABLED(%rax)
	je	8f
	movq	ENTRY_DATA(%rax), %rdi
	movl	CALLS_INDEX(%rdi), %edx
	shlq	$6, %rdx
	leaq	THREAD_HOLDS(%rcx,%rdx), %rdx
	leaq	QUICK_FRAME(%rsp), %rsi
	movq	%rsi, %rax
	shrq	$16, %rax
	cmpq	THREAD_HOME(%rcx), %rax
	jne	8f
	movq	HELD_FRAME(%rdx), %rax
	orq	(HELD_FRAME + HELD_BYTES)(%rdx), %rax
	orq	(HELD_FRAME + 2 * HELD_BYTES)(%rdx), %rax
	orq	(HELD_FRAME + 3 * HELD_BYTES)(%rdx), %rax
	orq	CALLS_FURTHEST(%rdi), %rax
	jnz	8f
	movq	(%rsi), %rax
	subq	np_hit_returns + THUNKS(%rip), %rax
	cmpq	np_hit_returns + THUNKS_BYTES(%rip), %rax
	jb	8f
	movq	HELD_CALL(%rdx), %r8
	testq	%r8, %r8
	jz	8f
	movq	$BUSY, HELD_FRAME(%rdx)
	testb	$HOLD_LOST, CALL_HOLD(%r8)
	jnz	7f
	movq	THREAD_LIFE(%rcx), %rax
	movq	%rax, CALL_LIFE(%r8)
	movq	CALLS_OWNER(%rdi), %rax
	movq	%rax, CALL_INSTANCE(%r8)
	leaq	CALL_BYTES(%r8), %rax
	movq	%rax, CALL_DATA(%r8)
	movq	(%rsi), %rax
	movq	%rax, CALL_WORD(%r8)
	movq	%rax, CALL_RETURN_ADDRESS(%r8)
	movq	%rsi, CALL_INSTANCE_FRAME(%r8)
	incl	THREAD_CALLS(%rcx)
	movq	%rsi, HELD_FRAME(%rdx)
	incq	THREAD_EPOCH(%rcx)
	movq	$0, THREAD_DEPTH(%rcx)
	xorl	%eax, %eax
	ret
7:	movq	$0, HELD_FRAME(%rdx)
8:	movq	$0, THREAD_DEPTH(%rcx)
9:	movl	$1, %eax
	ret
	.size	np_retprobe_entry_quick, . - np_retprobe_entry_quick

	/* It has a handler. */
	.globl	np_retprobe_exit_short
	.hidden	np_retprobe_exit_short
	.type	np_retprobe_exit_short, @function
	.p2align 5
np_retprobe_exit_short:
	movq	ENTRY_DATA(%rdi), %rcx
	movl	CALLS_INDEX(%rcx), %r8d
	movq	%r8, %rdx
	shlq	$6, %rdx
	leaq	THREAD_HOLDS(%r12,%rdx), %rdx
	cmpq	%rbp, HELD_FRAME(%rdx)
	jne	1f
	movq	HELD_CALL(%rdx), %r9
	movq	THREAD_LIFE(%r12), %rax
	cmpq	CALL_LIFE(%r9), %rax
	jne	1f
	decl	THREAD_CALLS(%r12)
	movq	$BUSY, HELD_FRAME(%rdx)
	shlq	$4, %r8
	incq	THREAD_COUNTERS(%r12,%r8)
	pushq	%rdx
	/* The handler sees the function left. */
	movq	CALL_RETURN_ADDRESS(%r9), %rax
	movq	%rax, REGS_RIP(%rbx)
	leaq	8(%rbp), %rax
	movq	%rax, REGS_RSP(%rbx)
	leaq	CALL_INSTANCE(%r9), %rdi
	call	*CALLS_HANDLER(%rcx)
	popq	%rdx
	movq	$0, HELD_FRAME(%rdx)
	movq	SITE_ADDRESS(%r13), %rax
	movq	%rax, REGS_RIP(%rbx)
	movq	%rbp, REGS_RSP(%rbx)
	xorl	%eax, %eax
	ret
1:	jmp	np_retprobe_exit
	.size	np_retprobe_exit_short, . - np_retprobe_exit_short

	.section .note.GNU-stack, "", @progbits
