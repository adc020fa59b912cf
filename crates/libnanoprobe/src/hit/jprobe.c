/* Jumper probes: a mirror function sees the arguments of the function that was hit. */
#include "hit.h"
#include "raw.h"

#include <sys/syscall.h>
#include <sys/uio.h>

NP_HIDDEN void np_jprobe_call(void *mirror, struct np_regs *regs, uint64_t *left, uint64_t bytes);

enum { PAGE = 4096 };

/* How many bytes of arguments on the stack can be read. The stack may end in the page after the return address.
 * This asks the kernel about that page only when it is another one than at the thread's last hit. If the page has
 * been unmapped since, np_hit_fault handles the fault. */
static inline NP_PATH uint64_t bytes_of_arguments(struct np_hit_thread *self, uint64_t rsp)
{
	uint64_t from = rsp + 8, behind = (from + NP_JPROBE_STACK - 1) & ~(uint64_t)(PAGE - 1);
	/* The page that holds the end of the return address exists: the call has just written there. */
	if (np_likely(behind <= from - 1 || behind == self->readable))
		return NP_JPROBE_STACK;
	char byte;
	struct iovec local = { &byte, 1 }, remote = { (void *)behind, 1 };
	if (np_raw_call(SYS_process_vm_readv, np_raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0), (long)&local, 1, (long)&remote, 1,
			0) != 1)
		return behind - from;
	self->readable = behind;
	return NP_JPROBE_STACK;
}

/* np_hit_function of a jumper probe; entry->data is the mirror. */
NP_PATH int np_jprobe_hit(struct np_hit_entry *entry, struct np_regs *regs)
{
	struct np_hit_thread *self = np_hit_self;
	self->counters[entry->index].hits++;
	uint64_t before = self->jprobe;
	np_jprobe_call(entry->data, regs, &self->jprobe, bytes_of_arguments(self, regs->rsp));
	self->jprobe = before;
	return 0;
}

/* The stack pointer with which the calling thread leaves its current mirror; 0: the thread is in none. */
NP_PATH uint64_t np_jprobe_end(void)
{
	struct np_hit_thread *self = np_hit_self;
	return self && self->depth ? self->jprobe : 0;
}
