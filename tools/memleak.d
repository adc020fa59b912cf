/*
 * memleak - memory that was allocated and not freed, by stack
 *
 * usage: nanoprobe tool memleak {-p PID | -c COMMAND} [MODULE [[MODULE:]FUNCTION]]
 *
 * Follows malloc, calloc, realloc, aligned_alloc, memalign, valloc, posix_memalign, free, and C++'s
 * operators new and delete, of MODULE (default: all modules, so the allocator may be libc's,
 * jemalloc, tcmalloc or mimalloc, in a library or in the program itself). If one allocates by
 * another, the outermost counts. At the end it shows, for each stack of four frames that allocates,
 * the blocks and bytes that were allocated there while the tool ran and not freed, and the seconds
 * since the tool began at which the stack allocated first and last. A stack with 0 has freed all of
 * its blocks. Blocks that were allocated before do not count. At most some hundred thousand blocks
 * are followed at a time; -x dynvarsize=256m follows more, and blocks without room are reported.
 *
 * If a program calls malloc only from its own function, all stacks begin there. Name that function
 * (globs match: 'a.out:z*alloc*'), and the stacks begin with its callers instead.
 *
 * example:
 *
 *   # nanoprobe tool memleak -c ./leaky
 *       BLOCKS          BYTES   FIRST s    LAST s  ALLOCATED BY
 *           12           1200         0        31  a.out`leak_100+0x11
 *                                                  a.out`handle+0x52
 *                                                  a.out`main+0x90
 *                                                  libc.so.6`__libc_start_call_main+0x7a
 */
#pragma D option quiet
#pragma D option zdefs
#pragma D option dynvarsize=64m
#pragma D option return=value

/* The size of each block, and its stack, by the block's address. */
int64_t sizes[int64_t];
uint64_t stacks[int64_t];

/* The frames of each stack, by a number computed from them. */
uint64_t first[uint64_t];
uint64_t second[uint64_t];
uint64_t third[uint64_t];
uint64_t fourth[uint64_t];

self int64_t outer;
self int64_t frame;
self int64_t depth;
self int64_t old;
self int64_t old_size;
self uint64_t old_stack;
self int64_t size;
self int64_t slot;
self uint64_t stack;

BEGIN
{
	began = timestamp;
}

/*
 * The stack of the outermost call: of the program's own function, or else of the allocator's. The
 * place of its return address identifies a call, so a call that is left by an exception is over with
 * the next one.
 */
pid$target:$2:entry
/!self->outer || uregs[R_RSP] >= self->outer/
{
	self->outer = uregs[R_RSP];
	this->walks = 1;
}

pid$target:$2:return
/self->outer == uregs[R_RSP]/
{
	self->outer = 0;
}

pid$target:$1:malloc:entry,
pid$target:$1:je_malloc:entry,
pid$target:$1:mi_malloc:entry,
pid$target:$1:tc_malloc:entry,
pid$target:$1:valloc:entry,
pid$target:$1:je_valloc:entry,
pid$target:$1:mi_valloc:entry,
pid$target:$1:tc_valloc:entry,
pid$target:$1:pvalloc:entry,
pid$target:$1:je_pvalloc:entry,
pid$target:$1:mi_pvalloc:entry,
pid$target:$1:tc_pvalloc:entry,
pid$target:$1:_Znwm:entry,
pid$target:$1:_Znam:entry,
pid$target:$1:_ZnwmSt11align_val_t:entry,
pid$target:$1:_ZnamSt11align_val_t:entry,
pid$target:$1:_ZnwmRKSt9nothrow_t:entry,
pid$target:$1:_ZnamRKSt9nothrow_t:entry,
pid$target:$1:_ZnwmSt11align_val_tRKSt9nothrow_t:entry,
pid$target:$1:_ZnamSt11align_val_tRKSt9nothrow_t:entry,
pid$target:$1:calloc:entry,
pid$target:$1:je_calloc:entry,
pid$target:$1:mi_calloc:entry,
pid$target:$1:tc_calloc:entry,
pid$target:$1:realloc:entry,
pid$target:$1:je_realloc:entry,
pid$target:$1:mi_realloc:entry,
pid$target:$1:tc_realloc:entry,
pid$target:$1:aligned_alloc:entry,
pid$target:$1:je_aligned_alloc:entry,
pid$target:$1:mi_aligned_alloc:entry,
pid$target:$1:tc_aligned_alloc:entry,
pid$target:$1:memalign:entry,
pid$target:$1:je_memalign:entry,
pid$target:$1:mi_memalign:entry,
pid$target:$1:tc_memalign:entry,
pid$target:$1:posix_memalign:entry,
pid$target:$1:je_posix_memalign:entry,
pid$target:$1:mi_posix_memalign:entry,
pid$target:$1:tc_posix_memalign:entry
{
	self->depth = !self->frame || uregs[R_RSP] >= self->frame ? 1 : 2;
	self->frame = self->depth == 1 ? uregs[R_RSP] : self->frame;
	self->old = self->depth == 1 ? 0 : self->old;
	this->walks = self->depth == 1 && !(self->outer && uregs[R_RSP] <= self->outer) ? 1 : this->walks;
}

pid$target:$2:entry,
pid$target:$1:malloc:entry,
pid$target:$1:je_malloc:entry,
pid$target:$1:mi_malloc:entry,
pid$target:$1:tc_malloc:entry,
pid$target:$1:valloc:entry,
pid$target:$1:je_valloc:entry,
pid$target:$1:mi_valloc:entry,
pid$target:$1:tc_valloc:entry,
pid$target:$1:pvalloc:entry,
pid$target:$1:je_pvalloc:entry,
pid$target:$1:mi_pvalloc:entry,
pid$target:$1:tc_pvalloc:entry,
pid$target:$1:_Znwm:entry,
pid$target:$1:_Znam:entry,
pid$target:$1:_ZnwmSt11align_val_t:entry,
pid$target:$1:_ZnamSt11align_val_t:entry,
pid$target:$1:_ZnwmRKSt9nothrow_t:entry,
pid$target:$1:_ZnamRKSt9nothrow_t:entry,
pid$target:$1:_ZnwmSt11align_val_tRKSt9nothrow_t:entry,
pid$target:$1:_ZnamSt11align_val_tRKSt9nothrow_t:entry,
pid$target:$1:calloc:entry,
pid$target:$1:je_calloc:entry,
pid$target:$1:mi_calloc:entry,
pid$target:$1:tc_calloc:entry,
pid$target:$1:realloc:entry,
pid$target:$1:je_realloc:entry,
pid$target:$1:mi_realloc:entry,
pid$target:$1:tc_realloc:entry,
pid$target:$1:aligned_alloc:entry,
pid$target:$1:je_aligned_alloc:entry,
pid$target:$1:mi_aligned_alloc:entry,
pid$target:$1:tc_aligned_alloc:entry,
pid$target:$1:memalign:entry,
pid$target:$1:je_memalign:entry,
pid$target:$1:mi_memalign:entry,
pid$target:$1:tc_memalign:entry,
pid$target:$1:posix_memalign:entry,
pid$target:$1:je_posix_memalign:entry,
pid$target:$1:mi_posix_memalign:entry,
pid$target:$1:tc_posix_memalign:entry
/this->walks/
{
	this->walks = 0;
	this->a = uframe(1);
	this->b = uframe(2);
	this->c = uframe(3);
	this->d = uframe(4);
	self->stack = ((this->a * 6364136223846793005 + this->b) * 6364136223846793005 + this->c) * 6364136223846793005 + this->d;
}

pid$target:$2:entry,
pid$target:$1:malloc:entry,
pid$target:$1:je_malloc:entry,
pid$target:$1:mi_malloc:entry,
pid$target:$1:tc_malloc:entry,
pid$target:$1:valloc:entry,
pid$target:$1:je_valloc:entry,
pid$target:$1:mi_valloc:entry,
pid$target:$1:tc_valloc:entry,
pid$target:$1:pvalloc:entry,
pid$target:$1:je_pvalloc:entry,
pid$target:$1:mi_pvalloc:entry,
pid$target:$1:tc_pvalloc:entry,
pid$target:$1:_Znwm:entry,
pid$target:$1:_Znam:entry,
pid$target:$1:_ZnwmSt11align_val_t:entry,
pid$target:$1:_ZnamSt11align_val_t:entry,
pid$target:$1:_ZnwmRKSt9nothrow_t:entry,
pid$target:$1:_ZnamRKSt9nothrow_t:entry,
pid$target:$1:_ZnwmSt11align_val_tRKSt9nothrow_t:entry,
pid$target:$1:_ZnamSt11align_val_tRKSt9nothrow_t:entry,
pid$target:$1:calloc:entry,
pid$target:$1:je_calloc:entry,
pid$target:$1:mi_calloc:entry,
pid$target:$1:tc_calloc:entry,
pid$target:$1:realloc:entry,
pid$target:$1:je_realloc:entry,
pid$target:$1:mi_realloc:entry,
pid$target:$1:tc_realloc:entry,
pid$target:$1:aligned_alloc:entry,
pid$target:$1:je_aligned_alloc:entry,
pid$target:$1:mi_aligned_alloc:entry,
pid$target:$1:tc_aligned_alloc:entry,
pid$target:$1:memalign:entry,
pid$target:$1:je_memalign:entry,
pid$target:$1:mi_memalign:entry,
pid$target:$1:tc_memalign:entry,
pid$target:$1:posix_memalign:entry,
pid$target:$1:je_posix_memalign:entry,
pid$target:$1:mi_posix_memalign:entry,
pid$target:$1:tc_posix_memalign:entry
/this->a && !first[self->stack]/
{
	second[self->stack] = this->b;
	third[self->stack] = this->c;
	fourth[self->stack] = this->d;
	first[self->stack] = this->a;
}

pid$target:$1:malloc:entry,
pid$target:$1:je_malloc:entry,
pid$target:$1:mi_malloc:entry,
pid$target:$1:tc_malloc:entry,
pid$target:$1:valloc:entry,
pid$target:$1:je_valloc:entry,
pid$target:$1:mi_valloc:entry,
pid$target:$1:tc_valloc:entry,
pid$target:$1:pvalloc:entry,
pid$target:$1:je_pvalloc:entry,
pid$target:$1:mi_pvalloc:entry,
pid$target:$1:tc_pvalloc:entry,
pid$target:$1:_Znwm:entry,
pid$target:$1:_Znam:entry,
pid$target:$1:_ZnwmSt11align_val_t:entry,
pid$target:$1:_ZnamSt11align_val_t:entry,
pid$target:$1:_ZnwmRKSt9nothrow_t:entry,
pid$target:$1:_ZnamRKSt9nothrow_t:entry,
pid$target:$1:_ZnwmSt11align_val_tRKSt9nothrow_t:entry,
pid$target:$1:_ZnamSt11align_val_tRKSt9nothrow_t:entry
/self->depth == 1/
{
	self->size = arg0;
}

pid$target:$1:calloc:entry,
pid$target:$1:je_calloc:entry,
pid$target:$1:mi_calloc:entry,
pid$target:$1:tc_calloc:entry
/self->depth == 1/
{
	self->size = arg0 * arg1;
}

pid$target:$1:aligned_alloc:entry,
pid$target:$1:je_aligned_alloc:entry,
pid$target:$1:mi_aligned_alloc:entry,
pid$target:$1:tc_aligned_alloc:entry,
pid$target:$1:memalign:entry,
pid$target:$1:je_memalign:entry,
pid$target:$1:mi_memalign:entry,
pid$target:$1:tc_memalign:entry
/self->depth == 1/
{
	self->size = arg1;
}

pid$target:$1:posix_memalign:entry,
pid$target:$1:je_posix_memalign:entry,
pid$target:$1:mi_posix_memalign:entry,
pid$target:$1:tc_posix_memalign:entry
/self->depth == 1/
{
	self->slot = arg0;
	self->size = arg2;
}

/* From here on another thread may get the old block's address. */
pid$target:$1:realloc:entry,
pid$target:$1:je_realloc:entry,
pid$target:$1:mi_realloc:entry,
pid$target:$1:tc_realloc:entry
/self->depth == 1/
{
	self->size = arg1;
	self->old = arg0;
	self->old_stack = stacks[arg0];
	self->old_size = sizes[arg0];
}

pid$target:$1:realloc:entry,
pid$target:$1:je_realloc:entry,
pid$target:$1:mi_realloc:entry,
pid$target:$1:tc_realloc:entry
/self->depth == 1 && self->old_stack/
{
	this->a = first[self->old_stack];
	this->b = second[self->old_stack];
	this->c = third[self->old_stack];
	this->d = fourth[self->old_stack];
	@blocks[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = sum(-1);
	@bytes[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = sum(-self->old_size);
	stacks[self->old] = 0;
	sizes[self->old] = 0;
}

/* After a realloc that failed, the old block still exists. */
pid$target:$1:realloc:return,
pid$target:$1:je_realloc:return,
pid$target:$1:mi_realloc:return,
pid$target:$1:tc_realloc:return
/self->frame == uregs[R_RSP] && !arg1 && self->size && self->old && self->old_stack/
{
	this->a = first[self->old_stack];
	this->b = second[self->old_stack];
	this->c = third[self->old_stack];
	this->d = fourth[self->old_stack];
	stacks[self->old] = self->old_stack;
	sizes[self->old] = self->old_size;
	@blocks[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = sum(1);
	@bytes[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = sum(self->old_size);
}

pid$target:$1:malloc:return,
pid$target:$1:je_malloc:return,
pid$target:$1:mi_malloc:return,
pid$target:$1:tc_malloc:return,
pid$target:$1:valloc:return,
pid$target:$1:je_valloc:return,
pid$target:$1:mi_valloc:return,
pid$target:$1:tc_valloc:return,
pid$target:$1:pvalloc:return,
pid$target:$1:je_pvalloc:return,
pid$target:$1:mi_pvalloc:return,
pid$target:$1:tc_pvalloc:return,
pid$target:$1:_Znwm:return,
pid$target:$1:_Znam:return,
pid$target:$1:_ZnwmSt11align_val_t:return,
pid$target:$1:_ZnamSt11align_val_t:return,
pid$target:$1:_ZnwmRKSt9nothrow_t:return,
pid$target:$1:_ZnamRKSt9nothrow_t:return,
pid$target:$1:_ZnwmSt11align_val_tRKSt9nothrow_t:return,
pid$target:$1:_ZnamSt11align_val_tRKSt9nothrow_t:return,
pid$target:$1:calloc:return,
pid$target:$1:je_calloc:return,
pid$target:$1:mi_calloc:return,
pid$target:$1:tc_calloc:return,
pid$target:$1:realloc:return,
pid$target:$1:je_realloc:return,
pid$target:$1:mi_realloc:return,
pid$target:$1:tc_realloc:return,
pid$target:$1:aligned_alloc:return,
pid$target:$1:je_aligned_alloc:return,
pid$target:$1:mi_aligned_alloc:return,
pid$target:$1:tc_aligned_alloc:return,
pid$target:$1:memalign:return,
pid$target:$1:je_memalign:return,
pid$target:$1:mi_memalign:return,
pid$target:$1:tc_memalign:return
/self->frame == uregs[R_RSP]/
{
	this->block = arg1;
}

pid$target:$1:posix_memalign:return,
pid$target:$1:je_posix_memalign:return,
pid$target:$1:mi_posix_memalign:return,
pid$target:$1:tc_posix_memalign:return
/self->frame == uregs[R_RSP] && !(int)arg1/
{
	this->block = *(int64_t *)copyin(self->slot, 8);
}

pid$target:$1:malloc:return,
pid$target:$1:je_malloc:return,
pid$target:$1:mi_malloc:return,
pid$target:$1:tc_malloc:return,
pid$target:$1:valloc:return,
pid$target:$1:je_valloc:return,
pid$target:$1:mi_valloc:return,
pid$target:$1:tc_valloc:return,
pid$target:$1:pvalloc:return,
pid$target:$1:je_pvalloc:return,
pid$target:$1:mi_pvalloc:return,
pid$target:$1:tc_pvalloc:return,
pid$target:$1:_Znwm:return,
pid$target:$1:_Znam:return,
pid$target:$1:_ZnwmSt11align_val_t:return,
pid$target:$1:_ZnamSt11align_val_t:return,
pid$target:$1:_ZnwmRKSt9nothrow_t:return,
pid$target:$1:_ZnamRKSt9nothrow_t:return,
pid$target:$1:_ZnwmSt11align_val_tRKSt9nothrow_t:return,
pid$target:$1:_ZnamSt11align_val_tRKSt9nothrow_t:return,
pid$target:$1:calloc:return,
pid$target:$1:je_calloc:return,
pid$target:$1:mi_calloc:return,
pid$target:$1:tc_calloc:return,
pid$target:$1:realloc:return,
pid$target:$1:je_realloc:return,
pid$target:$1:mi_realloc:return,
pid$target:$1:tc_realloc:return,
pid$target:$1:aligned_alloc:return,
pid$target:$1:je_aligned_alloc:return,
pid$target:$1:mi_aligned_alloc:return,
pid$target:$1:tc_aligned_alloc:return,
pid$target:$1:memalign:return,
pid$target:$1:je_memalign:return,
pid$target:$1:mi_memalign:return,
pid$target:$1:tc_memalign:return,
pid$target:$1:posix_memalign:return,
pid$target:$1:je_posix_memalign:return,
pid$target:$1:mi_posix_memalign:return,
pid$target:$1:tc_posix_memalign:return
/self->frame == uregs[R_RSP]/
{
	self->frame = 0;
	this->a = this->block ? first[self->stack] : 0;
}

pid$target:$1:malloc:return,
pid$target:$1:je_malloc:return,
pid$target:$1:mi_malloc:return,
pid$target:$1:tc_malloc:return,
pid$target:$1:valloc:return,
pid$target:$1:je_valloc:return,
pid$target:$1:mi_valloc:return,
pid$target:$1:tc_valloc:return,
pid$target:$1:pvalloc:return,
pid$target:$1:je_pvalloc:return,
pid$target:$1:mi_pvalloc:return,
pid$target:$1:tc_pvalloc:return,
pid$target:$1:_Znwm:return,
pid$target:$1:_Znam:return,
pid$target:$1:_ZnwmSt11align_val_t:return,
pid$target:$1:_ZnamSt11align_val_t:return,
pid$target:$1:_ZnwmRKSt9nothrow_t:return,
pid$target:$1:_ZnamRKSt9nothrow_t:return,
pid$target:$1:_ZnwmSt11align_val_tRKSt9nothrow_t:return,
pid$target:$1:_ZnamSt11align_val_tRKSt9nothrow_t:return,
pid$target:$1:calloc:return,
pid$target:$1:je_calloc:return,
pid$target:$1:mi_calloc:return,
pid$target:$1:tc_calloc:return,
pid$target:$1:realloc:return,
pid$target:$1:je_realloc:return,
pid$target:$1:mi_realloc:return,
pid$target:$1:tc_realloc:return,
pid$target:$1:aligned_alloc:return,
pid$target:$1:je_aligned_alloc:return,
pid$target:$1:mi_aligned_alloc:return,
pid$target:$1:tc_aligned_alloc:return,
pid$target:$1:memalign:return,
pid$target:$1:je_memalign:return,
pid$target:$1:mi_memalign:return,
pid$target:$1:tc_memalign:return,
pid$target:$1:posix_memalign:return,
pid$target:$1:je_posix_memalign:return,
pid$target:$1:mi_posix_memalign:return,
pid$target:$1:tc_posix_memalign:return
/this->a && this->block/
{
	this->b = second[self->stack];
	this->c = third[self->stack];
	this->d = fourth[self->stack];
	sizes[this->block] = self->size;
	stacks[this->block] = self->stack;
	@blocks[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = sum(1);
	@bytes[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = sum(self->size);
	@first_s[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = min((timestamp - began) / 1000000000);
	@last_s[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = max((timestamp - began) / 1000000000);
	this->block = 0;
}

pid$target:$1:free:entry,
pid$target:$1:je_free:entry,
pid$target:$1:mi_free:entry,
pid$target:$1:tc_free:entry,
pid$target:$1:je_cfree:entry,
pid$target:$1:mi_cfree:entry,
pid$target:$1:tc_cfree:entry,
pid$target:$1:cfree:entry,
pid$target:$1:_ZdlPv:entry,
pid$target:$1:_ZdaPv:entry,
pid$target:$1:_ZdlPvm:entry,
pid$target:$1:_ZdaPvm:entry,
pid$target:$1:_ZdlPvSt11align_val_t:entry,
pid$target:$1:_ZdaPvSt11align_val_t:entry,
pid$target:$1:_ZdlPvmSt11align_val_t:entry,
pid$target:$1:_ZdaPvmSt11align_val_t:entry,
pid$target:$1:_ZdlPvRKSt9nothrow_t:entry,
pid$target:$1:_ZdaPvRKSt9nothrow_t:entry
/arg0 && stacks[arg0]/
{
	this->stack = stacks[arg0];
	this->a = first[this->stack];
	this->b = second[this->stack];
	this->c = third[this->stack];
	this->d = fourth[this->stack];
	@blocks[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = sum(-1);
	@bytes[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = sum(-sizes[arg0]);
	stacks[arg0] = 0;
	sizes[arg0] = 0;
}

END
{
	printf("%10s %12s %7s %7s  ALLOCATED BY\n", "BLOCKS", "BYTES", "FIRST s", "LAST s");
	printa("%@10d %@12d %@7u %@7u  %A\n                                         %A\n                                         %A\n                                         %A\n", @blocks, @bytes, @first_s, @last_s);
}
