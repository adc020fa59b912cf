/*
 * memleak - memory that was allocated and not freed, by caller
 *
 * usage: nanoprobe tool memleak {-p PID | -c COMMAND} [MODULE [[MODULE:]FUNCTION]]
 *
 * Follows malloc, calloc, realloc, aligned_alloc, memalign, valloc, posix_memalign and free of
 * MODULE (default: libc). At the end it shows, for each place that allocates, what was allocated
 * there while the tool ran and not freed. A place with 0 has freed all of its blocks. Blocks that
 * were allocated before do not count. At most some hundred thousand blocks are followed at a time;
 * -x dynvarsize=256m follows more, and blocks without room are reported.
 *
 * A program that calls malloc only from its own function has one place that allocates everything.
 * Name that function (globs match: 'a.out:z*alloc*'), and its callers are shown instead.
 *
 * example:
 *
 *   # nanoprobe tool memleak -c ./leaky
 *        BLOCKS          BYTES  ALLOCATED BY
 *             0              0  a.out`parse+0x2e
 *            12           1200  a.out`leak_100+0x11
 */
#pragma D option quiet
#pragma D option dynvarsize=64m
#pragma D option return=value

/* Of each block, by its address. */
int64_t callers[int64_t];
int64_t sizes[int64_t];

self int64_t outer;
self int64_t blamed;
self int64_t frame;
self int64_t old;

/* The program's own function, the outermost call: the place of its return address identifies it, so
 * a call that is left by an exception is over with the next one. */
pid$target:$2:entry
/!self->outer || uregs[R_RSP] >= self->outer/
{
	self->outer = uregs[R_RSP];
	self->blamed = ucaller;
}

pid$target:$2:return
/self->outer == uregs[R_RSP]/
{
	self->outer = 0;
	self->blamed = 0;
}

pid$target:$1:malloc:entry,
pid$target:$1:calloc:entry,
pid$target:$1:realloc:entry,
pid$target:$1:aligned_alloc:entry,
pid$target:$1:memalign:entry,
pid$target:$1:valloc:entry,
pid$target:$1:posix_memalign:entry
{
	/* One may use another: the outermost counts. The place of its return address identifies
	 * it, too. */
	self->depth = !self->frame || uregs[R_RSP] >= self->frame ? 1 : 2;
	self->frame = self->depth == 1 ? uregs[R_RSP] : self->frame;
	self->old = self->depth == 1 ? 0 : self->old;
}

pid$target:$1:malloc:entry,
pid$target:$1:valloc:entry
/self->depth == 1/
{
	self->size = arg0;
	self->caller = self->blamed ? self->blamed : ucaller;
}

pid$target:$1:calloc:entry
/self->depth == 1/
{
	self->size = arg0 * arg1;
	self->caller = self->blamed ? self->blamed : ucaller;
}

pid$target:$1:realloc:entry
/self->depth == 1/
{
	self->old = arg0;
	self->size = arg1;
	self->caller = self->blamed ? self->blamed : ucaller;
}

pid$target:$1:aligned_alloc:entry,
pid$target:$1:memalign:entry
/self->depth == 1/
{
	self->size = arg1;
	self->caller = self->blamed ? self->blamed : ucaller;
}

pid$target:$1:posix_memalign:entry
/self->depth == 1/
{
	self->slot = arg0;
	self->size = arg2;
	self->caller = self->blamed ? self->blamed : ucaller;
}

/* A realloc that could not be leaves the old block; one to 0 bytes frees it. */
pid$target:$1:realloc:return
/self->frame == uregs[R_RSP] && self->old && (arg1 || !self->size) && callers[self->old]/
{
	@blocks[uaddr(callers[self->old])] = sum(-1);
	@bytes[uaddr(callers[self->old])] = sum(-sizes[self->old]);
	callers[self->old] = 0;
	sizes[self->old] = 0;
}

pid$target:$1:malloc:return,
pid$target:$1:calloc:return,
pid$target:$1:realloc:return,
pid$target:$1:aligned_alloc:return,
pid$target:$1:memalign:return,
pid$target:$1:valloc:return
/self->frame == uregs[R_RSP] && arg1/
{
	sizes[arg1] = self->size;
	callers[arg1] = self->caller;
	@blocks[uaddr(self->caller)] = sum(1);
	@bytes[uaddr(self->caller)] = sum(self->size);
}

pid$target:$1:posix_memalign:return
/self->frame == uregs[R_RSP] && !(int)arg1/
{
	this->block = *(int64_t *)copyin(self->slot, 8);
	sizes[this->block] = self->size;
	callers[this->block] = self->caller;
	@blocks[uaddr(self->caller)] = sum(1);
	@bytes[uaddr(self->caller)] = sum(self->size);
}

pid$target:$1:malloc:return,
pid$target:$1:calloc:return,
pid$target:$1:realloc:return,
pid$target:$1:aligned_alloc:return,
pid$target:$1:memalign:return,
pid$target:$1:valloc:return,
pid$target:$1:posix_memalign:return
/self->frame == uregs[R_RSP]/
{
	self->frame = 0;
}

pid$target:$1:free:entry
/arg0 && callers[arg0]/
{
	@blocks[uaddr(callers[arg0])] = sum(-1);
	@bytes[uaddr(callers[arg0])] = sum(-sizes[arg0]);
	callers[arg0] = 0;
	sizes[arg0] = 0;
}

END
{
	printf("%12s %14s  ALLOCATED BY\n", "BLOCKS", "BYTES");
	printa("%@12d %@14d  %A\n", @blocks, @bytes);
}
