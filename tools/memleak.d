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

/* What a probe has done: +1 or -1 blocks of so many bytes, allocated by this stack. */
this int64_t block;
this int64_t blocks;
this int64_t bytes;
this uint64_t by;

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

/*
 * How much a call asks for. Names with je_, mi_ and tc_ are those of jemalloc, mimalloc and tcmalloc.
 * _Zn[wa]m and _Zd[la]Pv are C++'s operators; _ZnwmPv, which allocates nothing, is none of them.
 */
pid$target:$1:[mv]alloc:entry, pid$target:$1:[jmt][eic]_[mv]alloc:entry,
pid$target:$1:pvalloc:entry, pid$target:$1:[jmt][eic]_pvalloc:entry,
pid$target:$1:_Zn[wa]m:entry, pid$target:$1:_Zn[wa]mSt*:entry, pid$target:$1:_Zn[wa]mRKSt*:entry
{
	this->asks = 1;
	this->size = arg0;
}

pid$target:$1:calloc:entry, pid$target:$1:[jmt][eic]_calloc:entry
{
	this->asks = 1;
	this->size = arg0 * arg1;
}

pid$target:$1:realloc:entry, pid$target:$1:[jmt][eic]_realloc:entry,
pid$target:$1:aligned_alloc:entry, pid$target:$1:[jmt][eic]_aligned_alloc:entry,
pid$target:$1:memalign:entry, pid$target:$1:[jmt][eic]_memalign:entry
{
	this->asks = 1;
	this->size = arg1;
}

pid$target:$1:posix_memalign:entry, pid$target:$1:[jmt][eic]_posix_memalign:entry
{
	this->asks = 1;
	this->size = arg2;
}

pid$target:$2:entry,
pid$target:$1:[mcv]alloc:entry, pid$target:$1:[jmt][eic]_[mcv]alloc:entry,
pid$target:$1:pvalloc:entry, pid$target:$1:[jmt][eic]_pvalloc:entry,
pid$target:$1:realloc:entry, pid$target:$1:[jmt][eic]_realloc:entry,
pid$target:$1:aligned_alloc:entry, pid$target:$1:[jmt][eic]_aligned_alloc:entry,
pid$target:$1:memalign:entry, pid$target:$1:[jmt][eic]_memalign:entry,
pid$target:$1:posix_memalign:entry, pid$target:$1:[jmt][eic]_posix_memalign:entry,
pid$target:$1:_Zn[wa]m:entry, pid$target:$1:_Zn[wa]mSt*:entry, pid$target:$1:_Zn[wa]mRKSt*:entry
{
	if (this->asks) {
		this->asks = 0;
		self->depth = !self->frame || uregs[R_RSP] >= self->frame ? 1 : 2;
		if (self->depth == 1) {
			self->frame = uregs[R_RSP];
			self->size = this->size;
			self->old = 0;
			self->slot = 0;
			this->walks = self->outer && uregs[R_RSP] <= self->outer ? this->walks : 1;
		}
	}
	if (this->walks) {
		this->walks = 0;
		this->a = uframe(1);
		this->b = uframe(2);
		this->c = uframe(3);
		this->d = uframe(4);
		self->stack = ((this->a * 6364136223846793005 + this->b) * 6364136223846793005 + this->c) * 6364136223846793005 + this->d;
		if (this->a && !first[self->stack]) {
			second[self->stack] = this->b;
			third[self->stack] = this->c;
			fourth[self->stack] = this->d;
			first[self->stack] = this->a;
		}
	}
}

pid$target:$1:posix_memalign:entry, pid$target:$1:[jmt][eic]_posix_memalign:entry
/self->depth == 1/
{
	self->slot = arg0;
}

/* From here on another thread may get the old block's address. */
pid$target:$1:realloc:entry, pid$target:$1:[jmt][eic]_realloc:entry
{
	this->enters = 1;
	if (self->depth == 1) {
		self->old = arg0;
		self->old_stack = stacks[arg0];
		self->old_size = sizes[arg0];
		if (self->old_stack) {
			this->blocks = -1;
			this->bytes = -self->old_size;
			this->by = self->old_stack;
			stacks[self->old] = 0;
			sizes[self->old] = 0;
		}
	}
}

/* After a realloc that failed, the old block still exists. */
pid$target:$1:realloc:return, pid$target:$1:[jmt][eic]_realloc:return
/self->frame == uregs[R_RSP] && !arg1 && self->size && self->old && self->old_stack/
{
	this->blocks = 1;
	this->bytes = self->old_size;
	this->by = self->old_stack;
	stacks[self->old] = self->old_stack;
	sizes[self->old] = self->old_size;
}

pid$target:$1:free:entry, pid$target:$1:[jmt][eic]_free:entry,
pid$target:$1:cfree:entry, pid$target:$1:[jmt][eic]_cfree:entry,
pid$target:$1:_Zd[la]Pv:entry, pid$target:$1:_Zd[la]Pv[mR]*:entry, pid$target:$1:_Zd[la]PvSt*:entry
{
	this->enters = 1;
	if (arg0 && stacks[arg0]) {
		this->blocks = -1;
		this->bytes = -sizes[arg0];
		this->by = stacks[arg0];
		stacks[arg0] = 0;
		sizes[arg0] = 0;
	}
}

pid$target:$1:[mcv]alloc:return, pid$target:$1:[jmt][eic]_[mcv]alloc:return,
pid$target:$1:pvalloc:return, pid$target:$1:[jmt][eic]_pvalloc:return,
pid$target:$1:realloc:return, pid$target:$1:[jmt][eic]_realloc:return,
pid$target:$1:aligned_alloc:return, pid$target:$1:[jmt][eic]_aligned_alloc:return,
pid$target:$1:memalign:return, pid$target:$1:[jmt][eic]_memalign:return,
pid$target:$1:posix_memalign:return, pid$target:$1:[jmt][eic]_posix_memalign:return,
pid$target:$1:_Zn[wa]m:return, pid$target:$1:_Zn[wa]mSt*:return, pid$target:$1:_Zn[wa]mRKSt*:return,
pid$target:$1:realloc:entry, pid$target:$1:[jmt][eic]_realloc:entry,
pid$target:$1:free:entry, pid$target:$1:[jmt][eic]_free:entry,
pid$target:$1:cfree:entry, pid$target:$1:[jmt][eic]_cfree:entry,
pid$target:$1:_Zd[la]Pv:entry, pid$target:$1:_Zd[la]Pv[mR]*:entry, pid$target:$1:_Zd[la]PvSt*:entry
{
	this->block = 0;
	if (!this->enters && self->frame == uregs[R_RSP]) {
		self->frame = 0;
		this->block = !self->slot ? arg1 : (int)arg1 ? 0 : *(int64_t *)copyin(self->slot, 8);
		if (this->block && first[self->stack]) {
			this->blocks = 1;
			this->bytes = self->size;
			this->by = self->stack;
			sizes[this->block] = self->size;
			stacks[this->block] = self->stack;
		}
	}
	this->enters = 0;
	if (this->blocks) {
		this->a = first[this->by];
		this->b = second[this->by];
		this->c = third[this->by];
		this->d = fourth[this->by];
		@blocks[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = sum(this->blocks);
		@bytes[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = sum(this->bytes);
		if (this->block) {
			this->s = (timestamp - began) / 1000000000;
			@first_s[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = min(this->s);
			@last_s[uaddr(this->a), uaddr(this->b), uaddr(this->c), uaddr(this->d)] = max(this->s);
		}
		this->blocks = 0;
	}
}

END
{
	printf("%10s %12s %7s %7s  ALLOCATED BY\n", "BLOCKS", "BYTES", "FIRST s", "LAST s");
	printa("%@10d %@12d %@7u %@7u  %A\n                                         %A\n                                         %A\n                                         %A\n", @blocks, @bytes, @first_s, @last_s);
}
