/* Watchpoints: when a debug register sees an access, the kernel sends a SIGTRAP to the thread that made it. The
 * signal comes after the access, or before an instruction that is watched for execution.
 *
 *     np_on_trap (agent)   si_code TRAP_PERF: asks np_hit_event, which knows its own events by si_perf_data
 *     np_hit_event         in the signal handler: guards against reentry, keeps the registers in the thread's block, and has
 *                          the thread go on at np_watched, on its own stack below the red zone
 *     np_watched_run       outside of the signal: SIMD registers, the handler; then everything is loaded by iretq
 *
 * So handlers run like those of other probes: on the thread's own stack, however small its signal stack is, and
 * with its own signal mask. From the guard in the signal handler to the end of the probe's handler the thread
 * counts as inside of a handler (`depth`), by the protocol of hit.h.
 *
 * Some accesses run no handler: those in a handler; those with SIGTRAP blocked, whose signal comes late
 * (TRAP_PERF_FLAG_ASYNC) and without information; and the second of two watchpoints that one instruction meets,
 * since a thread has at most one SIGTRAP pending. They are counted as the difference to the kernel's count.
 *
 * Some virtual machines lose the processor's report of a debug exception (DR6), once in a million exceptions. The
 * kernel then takes it for an int1 and sends TRAP_BRKPT. If the thread has executed no int1, this is an access that the
 * kernel has not counted. If there is only one watchpoint for data, the access belongs to it. If there are several, the
 * access counts as missed by the first. A watchpoint for execution is met again anyway.
 *
 * Some virtual machines deliver an int1 without moving rip to the next instruction: at times, or always while
 * breakpoint registers are in use, as ours are. The program would then execute it for ever. Here the thread
 * continues after the int1, as on a real processor, and the program gets the SIGTRAP.
 */
#define _GNU_SOURCE
#include "hit.h"

#include <ucontext.h>

struct np_hit_watch *np_hit_watches[NP_HIT_WATCHES] NP_HIDDEN;
uint64_t np_hit_watch_cookie NP_HIDDEN;

enum { CODE_BRKPT = 1, PERF_TYPE_BREAKPOINT = 5, TRAP_PERF_FLAG_ASYNC = 1, KEY_BITS = 24 };
enum { INT1 = 0xf1, PAGE_BYTES = 4096 };
enum { TRAP = 0x100, DIRECTION = 0x400, RESUME = 0x10000, ALIGNMENT = 0x40000 };
enum { RED_ZONE = 128, STACK_ALIGNMENT = 64 };

/* siginfo_t as far as a perf event fills it in. */
struct event_information {
	int32_t signal, error, code, padding;
	uint64_t address;
	uint64_t data;
	uint32_t type, flags;
};

struct frame {
	struct np_regs regs;
	uint64_t rip, cs, rflags, rsp, ss;
	uint64_t padding;
};
_Static_assert(sizeof(struct frame) == 192, "watched.S");
_Static_assert(offsetof(struct frame, rip) == 144, "watched.S");

/* The indices of a ucontext's registers, in the order of the fields of struct np_regs. */
static const unsigned char registers[] = { REG_R15, REG_R14, REG_R13, REG_R12, REG_RBP, REG_RBX, REG_R11, REG_R10, REG_R9,
					   REG_R8,  REG_RAX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RIP, REG_EFL, REG_RSP };
enum { REGISTERS = sizeof(registers) };
_Static_assert(sizeof(struct np_regs) == 8 * REGISTERS, "struct np_regs");

NP_HIDDEN void np_watched(void);
NP_HIDDEN void np_watched_run(struct frame *frame);

static NP_PATH struct np_hit_watch *find(uint64_t key)
{
	for (int place = 0; place < NP_HIT_WATCHES; place++) {
		struct np_hit_watch *watch = __atomic_load_n(&np_hit_watches[place], __ATOMIC_ACQUIRE);
		if (watch && watch->key == key)
			return watch;
	}
	return NULL;
}

static NP_PATH void leave(struct np_hit_thread *self)
{
	__atomic_store_n(&self->epoch, self->epoch + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&self->depth, 0, __ATOMIC_RELEASE);
}

/* Whether the thread has just executed int1; then it stands after it. The bytes are read directly: a sandbox may
 * kill a thread that asks the kernel, and the thread is about to execute that page. Bytes in the page before are
 * not read, and count as no int1. An access that was lost just before an int1 is taken for that int1, which would
 * follow anyway. */
static NP_PATH int has_executed_int1(greg_t *rip)
{
	const unsigned char *next = (const unsigned char *)*rip;
	if ((uint64_t)next % PAGE_BYTES && next[-1] == INT1)
		return 1;
	if (*next != INT1)
		return 0;
	++*rip;
	return 1;
}

/* The watchpoint for data whose access the machine has lost. NULL: there is none, or several could be meant. */
static NP_PATH struct np_hit_watch *lost(void)
{
	struct np_hit_watch *found = NULL;
	int count = 0;
	for (int place = 0; place < NP_HIT_WATCHES; place++) {
		struct np_hit_watch *watch = __atomic_load_n(&np_hit_watches[place], __ATOMIC_ACQUIRE);
		if (!watch || watch->executes || !__atomic_load_n(&watch->enabled, __ATOMIC_RELAXED))
			continue;
		if (count++ == 0)
			found = watch;
	}
	if (found)
		__atomic_fetch_add(&found->lost, 1, __ATOMIC_RELAXED);
	return count == 1 && found->handler ? found : NULL;
}

NP_PATH int np_hit_event(const void *siginfo, void *ucontext, uint64_t original, uint64_t pushed)
{
	const struct event_information *event = siginfo;
	ucontext_t *context = ucontext;
	greg_t *now = context->uc_mcontext.gregs;
	int is_lost = event->code == CODE_BRKPT;
	if (!np_hit_watch_cookie)
		return 0;
	/* With the trap flag set the signal may be one of the program's own single steps. */
	if (is_lost ? now[REG_EFL] & TRAP || has_executed_int1(&now[REG_RIP]) :
		      event->type != PERF_TYPE_BREAKPOINT || (event->data ^ np_hit_watch_cookie) >> KEY_BITS)
		return 0;
	/* From here on the event is ours, even if its watchpoint has gone meanwhile. */
	struct np_hit_thread *self = np_hit_self ? np_hit_self : np_hit_join();
	if (!self || (!is_lost && event->flags & TRAP_PERF_FLAG_ASYNC))
		return 1;
	const struct np_hit_stack alternate = { (uint64_t)context->uc_stack.ss_sp, context->uc_stack.ss_size };
	if (self->depth && !np_hit_is_left(self, (uint64_t)now[REG_RSP], &alternate)) {
		/* The thread is inside of a handler, so no watchpoint that it sees is freed before it has left. */
		if (is_lost)
			lost();
		return 1;
	}
	__atomic_store_n(&self->depth, (uint64_t)now[REG_RSP], __ATOMIC_RELEASE);
	__asm__ volatile("" ::: "memory");
	const struct np_hit_watch *watch = is_lost ? lost() : find(event->data);
	if (!watch || !__atomic_load_n(&watch->enabled, __ATOMIC_RELAXED)) {
		leave(self);
		return 1;
	}
	for (int index = 0; index < REGISTERS; index++)
		((uint64_t *)&self->watched)[index] = (uint64_t)now[registers[index]];
	self->watch = watch;
	self->watched_original = original;
	self->watched_pushed = pushed;
	uint64_t below = ((uint64_t)now[REG_RSP] - RED_ZONE) & ~(uint64_t)(STACK_ALIGNMENT - 1);
	now[REG_RSP] = (greg_t)(below - sizeof(struct frame));
	now[REG_RIP] = (greg_t)(uint64_t)np_watched;
	now[REG_EFL] &= ~(greg_t)(TRAP | DIRECTION | RESUME | ALIGNMENT);
	return 1;
}

static NP_PATH __attribute__((noinline)) void call(struct np_hit_thread *self, const struct np_hit_watch *watch, struct np_regs *regs)
{
	extern NP_HIDDEN uint32_t np_simd_features, np_simd_live;
	__attribute__((aligned(64))) char area[NP_SIMD_BYTES];
	np_simd_save(area, np_simd_features, np_simd_live);
	int saved = *self->error;
	self->counters[watch->index].hits++;
	watch->handler(watch->owner, regs);
	*self->error = saved;
	np_simd_restore(area, np_simd_features);
}

NP_PATH void np_watched_run(struct frame *frame)
{
	struct np_hit_thread *self = np_hit_self;
	const struct np_hit_watch *watch = self->watch;
	struct np_regs regs = self->watched;
	uint64_t rip = regs.rip, rsp = regs.rsp, original = self->watched_original;
	uint64_t seen = rsp + 8 * self->watched_pushed;
	/* The handler must see the rip that the thread would have without detours. */
	regs.rip = original;
	regs.rsp = seen;
	regs.rflags &= ~(uint64_t)RESUME;
	call(self, watch, &regs);
	frame->rflags = regs.rflags & ~(uint64_t)RESUME;
	if (regs.rip == original) {
		regs.rip = rip;
		regs.rsp -= seen - rsp;
		if (watch->executes)
			frame->rflags |= RESUME;
	}
	frame->regs = regs;
	frame->rip = regs.rip;
	frame->rsp = regs.rsp;
	__asm__("movq %%cs, %0\n\tmovq %%ss, %1" : "=r"(frame->cs), "=r"(frame->ss));
	/* Everything that is still needed is in the frame on the thread's stack. So the next access may use the thread's
	 * block. */
	leave(self);
}
