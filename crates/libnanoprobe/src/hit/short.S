/* Return probes: the short way for nearly all hits, at the entry and at the rets. The probe is its site's only
 * one, and has no fault handler, no entry handler and no data. All other hits begin anew in np_retprobe_entry and
 * np_retprobe_exit (retprobe.c). Memory is read and written in the same order as there.
 *
 * Detours call the code for entries. They also call the code for exits (np_hit_exit), unless registers must be
 * saved around the handler: then np_hit's short way (dispatch.S) calls it like a handler, with these registers:
 *
 *     rdi        struct np_hit_entry       rbp   rsp at the hit: the frame
 *     rbx, rsi   struct np_regs            r12   struct np_hit_thread         r13   the site
 *
 * The thread holds a place in its first slot for the probe, and its other slots are free (places.h).
 */
	/* struct np_hit_list */
	.set	LIST_SAVED, 8
	.set	LIST_ONLY, 24
	.set	LIST_CALL, 32
	.set	LIST_ARGUMENT, 40
	/* struct np_hit_entry */
	.set	ENTRY_ENABLED, 44
	.set	ENTRY_DATA, 48
	/* struct np_hit_calls */
	.set	CALLS_HANDLER, 0
	.set	CALLS_OWNER, 16
	.set	CALLS_INDEX, 56
	.set	CALLS_SITE, 72
	.set	CALLS_FURTHEST, 88
	/* struct np_hit_thread */
	.set	THREAD_DEPTH, 0
	.set	THREAD_EPOCH, 8
	.set	THREAD_CALLS, 116
	.set	THREAD_LIFE, 128
	.set	THREAD_COUNTERS, 144
	.set	THREAD_INDEX, 0x400e4
	.set	THREAD_CURSOR, 0x401a0
	.set	THREAD_HOME, 0x40338
	.set	THREAD_RETURNED_TO, 0x40348
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
	.set	CALL_CLAIMS, 56
	.set	CALL_HOLD, 60
	.set	CALL_BYTES, 80
	/* struct np_hit_returns */
	.set	THUNKS, 8
	.set	THUNKS_BYTES, 16
	.set	POOL, 24
	/* struct np_hit_thunks, struct np_hit_thunk: 64 in a chunk */
	.set	POOL_EVENTS, 28
	.set	POOL_ANSWERED, 32
	.set	POOL_OWNERS, 64
	.set	INSTANCES, 4160
	.set	INSTANCES_BYTES, 65536 * 32
	.set	THUNK_ADDRESS, 0
	.set	THUNK_SLOT, 8
	.set	THUNK_STUB, 16
	.set	THUNK_STATE, 24
	.set	THUNK_DEPTH, 28
	.set	THUNK_BYTES, 32
	.set	CHUNK_BYTES, 64 * THUNK_BYTES
	/* From free to armed, counting one more claim. */
	.set	CLAIM_AND_ARM, 4 + 2
	/* struct np_hit_site, struct np_regs */
	.set	SITE_ADDRESS, 0
	.set	SITE_LIST, 8
	.set	REGS_RIP, 120
	.set	REGS_FLAGS, 128
	.set	REGS_RSP, 136
	/* As in dispatch.S. */
	.set	RARE_FLAGS, 0x240500
	.set	BUSY, 1
	/* How far the frame is above rsp when a detour has called this code: for Quick::Inline, and for Quick::Called. */
	.set	INLINE_FRAME, 64
	.set	CALLED_FRAME, 80
	/* This bit of a place's hold is set in WANTED and TAKEN, and clear in HELD. */
	.set	HOLD_LOST, 2

	.section np_hit_path, "ax", @progbits
	/* Functions that np_hit calls at such an entry, if the detour has not called the code below, or that code has
	 * done nothing. Which of the two functions it is says the form of the probe: exits, or the return address. */
	.globl	np_retprobe_entry_plain
	.hidden	np_retprobe_entry_plain
	.type	np_retprobe_entry_plain, @function
np_retprobe_entry_plain:
	jmp	np_retprobe_entry
	.size	np_retprobe_entry_plain, . - np_retprobe_entry_plain

	.globl	np_retprobe_entry_replaced
	.hidden	np_retprobe_entry_replaced
	.type	np_retprobe_entry_replaced, @function
np_retprobe_entry_replaced:
	jmp	np_retprobe_entry
	.size	np_retprobe_entry_replaced, . - np_retprobe_entry_replaced

	/* A detour calls this first, with fewer registers saved (crates/patch/src/detour/function.rs). It does the work
	 * of the entry, and all that np_hit does around it. rdi: the site. 0: all is done; 1: nothing was done. The
	 * detour saves rax, rcx, rdx, rsi, rdi, r8 and the flags. */

	/* Marks the thread as inside of a handler, and checks that the site's list calls this code: \thread, \list. Else
	 * this jumps to 8 or 9. \depth: the stack pointer at the hit. */
	.macro	go_inside thread, list, call, depth=rsp
	movq	np_hit_self@gottpoff(%rip), %rax
	movq	%fs:(%rax), %\thread
	testq	%\thread, %\thread
	jz	9f
	cmpq	$0, THREAD_DEPTH(%\thread)
	jne	9f
	movq	%\depth, THREAD_DEPTH(%\thread)
	movq	SITE_LIST(%rdi), %\list
	testq	%\list, %\list
	jz	8f
	leaq	\call(%rip), %rax
	cmpq	%rax, LIST_CALL(%\list)
	jne	8f
	.endm

	/* Marks the thread as inside of a handler, and finds the free place that it holds for this kind of entry. rcx:
	 * the thread; rdi: struct np_hit_calls; rdx: its holds; r8: the place. If there is none, jumps to 8 or 9. */
	.macro	find_place kind, frame
	go_inside rcx, rdx, \kind
	movq	LIST_ONLY(%rdx), %rax
	cmpl	$0, ENTRY_ENABLED(%rax)
	je	8f
	movq	ENTRY_DATA(%rax), %rdi
	movl	CALLS_INDEX(%rdi), %edx
	shlq	$6, %rdx
	leaq	THREAD_HOLDS(%rcx,%rdx), %rdx
	leaq	\frame(%rsp), %rax
	shrq	$16, %rax
	cmpq	THREAD_HOME(%rcx), %rax
	jne	8f
	movq	HELD_FRAME(%rdx), %rax
	orq	(HELD_FRAME + HELD_BYTES)(%rdx), %rax
	orq	(HELD_FRAME + 2 * HELD_BYTES)(%rdx), %rax
	orq	(HELD_FRAME + 3 * HELD_BYTES)(%rdx), %rax
	orq	CALLS_FURTHEST(%rdi), %rax
	jnz	8f
	movq	HELD_CALL(%rdx), %r8
	testq	%r8, %r8
	jz	8f
	.endm

	/* Makes the place busy. Jumps to 7 if another thread wants the place just now. */
	.macro	take_place
	movq	$BUSY, HELD_FRAME(%rdx)
	testb	$HOLD_LOST, CALL_HOLD(%r8)
	jnz	7f
	.endm

	/* Fills in the call, except for its return address, and publishes the frame by which the call is found. */
	.macro	begin_call frame
	movq	THREAD_LIFE(%rcx), %rax
	movq	%rax, CALL_LIFE(%r8)
	movq	CALLS_OWNER(%rdi), %rax
	movq	%rax, CALL_INSTANCE(%r8)
	leaq	CALL_BYTES(%r8), %rax
	movq	%rax, CALL_DATA(%r8)
	leaq	\frame(%rsp), %rax
	movq	%rax, CALL_INSTANCE_FRAME(%r8)
	incl	THREAD_CALLS(%rcx)
	movq	%rax, HELD_FRAME(%rdx)
	.endm

	/* The ways out: 0 if all is done, 1 if nothing was done. */
	.macro	leave
	incq	THREAD_EPOCH(%rcx)
	movq	$0, THREAD_DEPTH(%rcx)
	xorl	%eax, %eax
	ret
7:	movq	$0, HELD_FRAME(%rdx)
8:	movq	$0, THREAD_DEPTH(%rcx)
9:	movl	$1, %eax
	ret
	.endm

	/* The entry of a function whose return probe uses the exits. */
	.globl	np_retprobe_entry_quick
	.hidden	np_retprobe_entry_quick
	.type	np_retprobe_entry_quick, @function
	.p2align 5
np_retprobe_entry_quick:
	find_place np_retprobe_entry_plain, INLINE_FRAME
	movq	INLINE_FRAME(%rsp), %rsi
	movq	%rsi, %rax
	subq	np_hit_returns + THUNKS(%rip), %rax
	cmpq	np_hit_returns + THUNKS_BYTES(%rip), %rax
	jb	8f
	take_place
	movq	%rsi, CALL_WORD(%r8)
	movq	%rsi, CALL_RETURN_ADDRESS(%r8)
	begin_call INLINE_FRAME
	leave
	.size	np_retprobe_entry_quick, . - np_retprobe_entry_quick

	/* The entry of a function whose return address is replaced. This does the work of take_quickly (retprobe.c), too.
	 * The detour jumps to the call in front of the thunk (returned.S). None of the return addresses that the agent
	 * has checked is a thunk's. */
	.globl	np_retprobe_replace_quick
	.hidden	np_retprobe_replace_quick
	.type	np_retprobe_replace_quick, @function
	.p2align 5
np_retprobe_replace_quick:
	find_place np_retprobe_entry_replaced, CALLED_FRAME
	movq	CALLED_FRAME(%rsp), %rax
	movq	%rax, %rsi
	shrq	$6, %rsi
	xorq	%rax, %rsi
	andl	$7, %esi
	cmpq	%rax, THREAD_RETURNED_TO(%rcx,%rsi,8)
	jne	8f
	movq	np_hit_returns + POOL(%rip), %rsi
	movl	POOL_EVENTS(%rsi), %eax
	cmpl	POOL_ANSWERED(%rsi), %eax
	jne	8f
	/* The thread's cursor: an instance, or 0, which the range check rejects. */
	movq	THREAD_CURSOR(%rcx), %rax
	subq	%rsi, %rax
	subq	$INSTANCES, %rax
	cmpq	$INSTANCES_BYTES, %rax
	jae	8f
	shrq	$11, %rax
	movl	POOL_OWNERS(%rsi,%rax,4), %eax
	subl	$1, %eax
	cmpl	THREAD_INDEX(%rcx), %eax
	jne	8f
	movq	THREAD_CURSOR(%rcx), %rsi
	testb	$3, THUNK_STATE(%rsi)
	jnz	8f
	take_place
	movq	CALLED_FRAME(%rsp), %rax
	movq	%rax, THUNK_ADDRESS(%rsi)
	movq	%rax, CALL_RETURN_ADDRESS(%r8)
	leaq	CALLED_FRAME(%rsp), %rax
	movq	%rax, THUNK_SLOT(%rsi)
	movq	CALLS_SITE(%rdi), %rax
	movq	%rax, THUNK_STUB(%rsi)
	movl	$0, THUNK_DEPTH(%rsi)
	/* The state is written before the slot: a signal handler that interrupts this and unwinds must see which return
	 * address it has to put back. */
	movl	THUNK_STATE(%rsi), %eax
	addl	$CLAIM_AND_ARM, %eax
	movl	%eax, THUNK_STATE(%rsi)
	shrl	$2, %eax
	movl	%eax, CALL_CLAIMS(%r8)
	/* Thunks are half as large as instances, so the thunk is half as far from the first one. */
	leaq	-INSTANCES(%rsi), %rax
	subq	np_hit_returns + POOL(%rip), %rax
	shrq	$1, %rax
	addq	np_hit_returns + THUNKS(%rip), %rax
	movq	%rax, CALLED_FRAME(%rsp)
	movq	%rax, CALL_WORD(%r8)
	subq	$4, %rax
	movq	%rax, (CALLED_FRAME - 16)(%rsp)
	/* Moves the cursor to the next instance of the chunk, if there is one. */
	addq	$THUNK_BYTES, %rsi
	leaq	-INSTANCES(%rsi), %rax
	subq	np_hit_returns + POOL(%rip), %rax
	testl	$(CHUNK_BYTES - 1), %eax
	movl	$0, %eax
	cmovnz	%rsi, %rax
	movq	%rax, THREAD_CURSOR(%rcx)
	begin_call CALLED_FRAME
	leave
	.size	np_retprobe_replace_quick, . - np_retprobe_replace_quick

	/* For a return probe that has a handler. */
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

	/* A detour at such an exit calls this instead of np_hit (dispatch.S), with the same registers. If no registers
	 * are saved around the handler, this does all that np_hit and np_retprobe_exit_short do. It ignores the handler's
	 * rip and rsp, since the handler may not change where the thread continues. Over the handler's call:
	 *
	 *     rbp   the thread's hold     r12   struct np_hit_thread      r14   rsp at the hit
	 *     r15   flags at the hit      on the stack: rdx
	 */
	.globl	np_hit_exit
	.hidden	np_hit_exit
	.type	np_hit_exit, @function
	.p2align 6
np_hit_exit:
	movq	REGS_RSP(%rbx), %r14
	go_inside r12, r8, np_retprobe_exit_short, r14
	movq	LIST_ARGUMENT(%r8), %rcx
	cmpq	$0, LIST_SAVED(%r8)
	jne	8f
	cmpl	$0, ENTRY_ENABLED(%rcx)
	je	8f
	movq	ENTRY_DATA(%rcx), %rcx
	movl	CALLS_INDEX(%rcx), %r8d
	movq	%r8, %r9
	shlq	$6, %r9
	leaq	THREAD_HOLDS(%r12,%r9), %rbp
	cmpq	%r14, HELD_FRAME(%rbp)
	jne	8f
	movq	HELD_CALL(%rbp), %r9
	movq	THREAD_LIFE(%r12), %rax
	cmpq	%rax, CALL_LIFE(%r9)
	jne	8f
	decl	THREAD_CALLS(%r12)
	movq	$BUSY, HELD_FRAME(%rbp)
	shlq	$4, %r8
	incq	THREAD_COUNTERS(%r12,%r8)
	pushq	%rdx
	movl	REGS_FLAGS(%rbx), %r15d
	/* The handler sees the function left. */
	movq	CALL_RETURN_ADDRESS(%r9), %rax
	movq	%rax, REGS_RIP(%rbx)
	leaq	8(%r14), %rax
	movq	%rax, REGS_RSP(%rbx)
	leaq	CALL_INSTANCE(%r9), %rdi
	call	*CALLS_HANDLER(%rcx)
	popq	%rdx
	movq	$0, HELD_FRAME(%rbp)
	incq	THREAD_EPOCH(%r12)
	movq	$0, THREAD_DEPTH(%r12)
	orl	REGS_FLAGS(%rbx), %r15d
	xorl	%eax, %eax
	testl	$RARE_FLAGS, %r15d
	jnz	3f
	ret
3:	movq	%rdx, REGS_RIP(%rbx)
	movq	%r14, REGS_RSP(%rbx)
	movl	$1, %eax
	ret
8:	movq	$0, THREAD_DEPTH(%r12)
9:	jmp	np_hit
	.size	np_hit_exit, . - np_hit_exit

	.section .note.GNU-stack, "", @progbits
