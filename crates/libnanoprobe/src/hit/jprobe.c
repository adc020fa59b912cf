/* Jumper probes: a mirror function sees the arguments of the function that was hit. */
#include "hit.h"
#include "raw.h"

#include <sys/syscall.h>
#include <sys/uio.h>

NP_HIDDEN void np_jprobe_call(void *mirror, struct np_regs *regs, uint64_t *left, const void *arguments);
NP_HIDDEN void np_jprobe_leave(uint64_t left) __attribute__((noreturn));

enum { PAGE = 4096 };

/* The arguments on the stack, as far as there is a stack. Only where they may end in a page that is not there does the
 * kernel have to be asked. */
static NP_PATH void copy_arguments(char *to, uint64_t from)
{
	uint64_t in_page = PAGE - from % PAGE;
	if (in_page < NP_JPROBE_STACK) {
		struct iovec local = { to + in_page, NP_JPROBE_STACK - in_page };
		struct iovec remote = { (void *)(from + in_page), NP_JPROBE_STACK - in_page };
		if (np_raw_call(SYS_process_vm_readv, np_raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0), (long)&local, 1,
				(long)&remote, 1, 0) < 0)
			for (uint64_t index = in_page; index < NP_JPROBE_STACK; index++)
				to[index] = 0;
	} else {
		in_page = NP_JPROBE_STACK;
	}
	for (uint64_t index = 0; index < in_page; index++)
		to[index] = ((const volatile char *)from)[index];
}

/* np_hit_function of a jumper probe; entry->data is the mirror. */
NP_PATH int np_jprobe_hit(struct np_hit_entry *entry, struct np_regs *regs)
{
	struct np_hit_thread *self = np_hit_self;
	char arguments[NP_JPROBE_STACK];
	self->counters[entry->index].hits++;
	copy_arguments(arguments, regs->rsp + 8);
	uint64_t before = self->jprobe;
	np_jprobe_call(entry->data, regs, &self->jprobe, arguments);
	self->jprobe = before;
	return 0;
}

/* Not 0: the calling thread is in a mirror, which ends here. */
NP_PATH int np_jprobe_end(void)
{
	struct np_hit_thread *self = np_hit_self;
	if (!self || !self->depth || !self->jprobe)
		return 0;
	np_jprobe_leave(self->jprobe);
}
