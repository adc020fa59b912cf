/* Faults of handlers and of probed instructions: the cases in which np_fault_handler is called. All of this runs
 * in the agent's signal handler.
 *
 *     a handler faults        self->depth, self->recoverable: its probe's fault handler; then, if that says so, the thread
 *                             goes on behind the handler's call (the __builtin_setjmp of hit.c), which is over
 *     a probed instruction    its relocated copy faults, which is why `original` is not rip: the fault handlers of all
 *                             probes on it, until one says that it has dealt with it
 *
 *     a jumper probe copies   arguments from a page that has just gone: there are fewer of them, and nobody is told
 *
 * Our signal actions block all signals. A fault handler may do whatever other handlers may, so it runs with the
 * mask of the interrupted code. A fault in a fault handler is the program's.
 */
#define _GNU_SOURCE
#include "hit.h"
#include "raw.h"

#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

struct np_hit_site *np_hit_sites_with_fault NP_HIDDEN;

/* The indices of a ucontext's registers, in the order of the fields of struct np_regs. */
static const unsigned char registers[] = { REG_R15, REG_R14, REG_R13, REG_R12, REG_RBP, REG_RBX, REG_R11, REG_R10, REG_R9,
					   REG_R8,  REG_RAX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RIP, REG_EFL, REG_RSP };
enum { REGISTERS = sizeof(registers) };
_Static_assert(sizeof(struct np_regs) == 8 * REGISTERS, "struct np_regs");
enum { DIRECTION = 0x400 };

static NP_PATH void load(struct np_regs *regs, const ucontext_t *context)
{
	for (int index = 0; index < REGISTERS; index++)
		((uint64_t *)regs)[index] = (uint64_t)context->uc_mcontext.gregs[registers[index]];
}

static NP_PATH void store(ucontext_t *context, const struct np_regs *regs)
{
	for (int index = 0; index < REGISTERS; index++)
		context->uc_mcontext.gregs[registers[index]] = (long long)((const uint64_t *)regs)[index];
}

static NP_PATH void set_mask(const ucontext_t *context)
{
	uint64_t mask = *(const uint64_t *)&context->uc_sigmask;
	mask &= ~(1UL << (SIGTRAP - 1) | 1UL << (SIGSEGV - 1) | 1UL << (SIGBUS - 1) | 1UL << (SIGILL - 1));
	np_raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, 8, 0, 0);
}

static NP_PATH int in_handler(struct np_hit_thread *self, int signal, ucontext_t *context)
{
	struct np_hit_entry *entry = self->current;
	struct np_regs regs;
	load(&regs, context);
	uint64_t rip = regs.rip;
	/* If the fault handler itself faults, no other fault handler is called. */
	self->recoverable = 0;
	int dealt_with = entry->fault((struct np_probe *)entry->owner, &regs, signal);
	self->recoverable = 1;
	if (!dealt_with)
		return 0;
	if (regs.rip == rip) {
		regs.rbp = (uint64_t)self->recover[0];
		regs.rip = (uint64_t)self->recover[1];
		regs.rsp = (uint64_t)self->recover[2];
		regs.rflags &= ~(uint64_t)DIRECTION;
	}
	store(context, &regs);
	return 1;
}

static NP_PATH int at_site(struct np_hit_thread *self, struct np_hit_site *site, int signal, ucontext_t *context,
			   uint64_t pushed)
{
	struct np_regs regs;
	int dealt_with = 0;
	load(&regs, context);
	uint64_t copy = regs.rip, rsp = regs.rsp + 8 * pushed;
	regs.rip = site->address;
	regs.rsp = rsp;
	__atomic_store_n(&self->depth, rsp, __ATOMIC_RELEASE);
	__asm__ volatile("" ::: "memory");
	const struct np_hit_list *list = __atomic_load_n(&site->list, __ATOMIC_ACQUIRE);
	for (uint64_t index = 0; list && index < list->count && !dealt_with; index++) {
		struct np_hit_entry *entry = list->entries[index];
		if (entry->fault && entry->enabled)
			dealt_with = entry->fault((struct np_probe *)entry->owner, &regs, signal);
	}
	__atomic_store_n(&self->epoch, self->epoch + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&self->depth, 0, __ATOMIC_RELEASE);
	if (!dealt_with)
		return 0;
	/* To execute the instruction again, the thread repeats the copy, so that no handler fires twice. This is not
	 * possible when the copy has done half of its work. */
	if (regs.rip == site->address && regs.rsp == rsp && !pushed)
		regs.rip = copy;
	store(context, &regs);
	return 1;
}

NP_PATH int np_hit_fault(int signal, void *ucontext, uint64_t original, uint64_t pushed)
{
	struct np_hit_thread *self = np_hit_self;
	ucontext_t *context = ucontext;
	if (!self)
		return 0;
	const struct np_hit_stack alternate = { (uint64_t)context->uc_stack.ss_sp, context->uc_stack.ss_size };
	if (self->depth && !np_hit_is_left(self, (uint64_t)context->uc_mcontext.gregs[REG_RSP], &alternate)) {
		if (context->uc_mcontext.gregs[REG_RIP] == (long long)(uint64_t)np_jprobe_copy) {
			self->readable = 0;
			context->uc_mcontext.gregs[REG_RIP] = (long long)(uint64_t)np_jprobe_cut;
			return 1;
		}
		if (!self->recoverable)
			return 0;
		set_mask(context);
		return in_handler(self, signal, context);
	}
	if (original == (uint64_t)context->uc_mcontext.gregs[REG_RIP])
		return 0;
	struct np_hit_site *site = __atomic_load_n(&np_hit_sites_with_fault, __ATOMIC_ACQUIRE);
	while (site && site->address != original)
		site = site->next_with_fault;
	if (!site)
		return 0;
	set_mask(context);
	return at_site(self, site, signal, context, pushed);
}
