/* The measurements that the process makes on itself, with libnanoprobe's probes: the probed
 * functions, and their handlers. Called from src/own. The handlers of the seed's lists: List 1 to 3
 * do nothing, List 8 to 10 record 64 bytes of an event. */
#define _GNU_SOURCE
#include "batches.h"
#include <nanoprobe.h>
#include <pthread.h>
#include <sys/syscall.h>

long bench_own_function(const char *text, long value);
long bench_own_gettimeofday(const char *text, long value);
/* In pages of their own, so that nothing else is patched with them. */
__asm__(".section .text.bench_own, \"ax\", @progbits\n.p2align 12\n"
        ".globl bench_own_function\n.type bench_own_function, @function\n"
        "bench_own_function:\n	pushq %rbp\n	movq %rsp, %rbp\n	leaq 1(%rsi), %rax\n	popq %rbp\n	ret\n"
        ".size bench_own_function, . - bench_own_function\n"
        ".p2align 6\n.globl bench_own_gettimeofday\n.type bench_own_gettimeofday, @function\n"
        "bench_own_gettimeofday:\n	pushq %rbp\n	movq %rsp, %rbp\n	subq $16, %rsp\n	pushq %rsi\n"
        "	leaq 8(%rsp), %rdi\n	xorl %esi, %esi\n	movl $96, %eax\n	syscall\n"
        "	popq %rax\n	incq %rax\n	leave\n	ret\n"
        ".size bench_own_gettimeofday, . - bench_own_gettimeofday\n"
        ".p2align 12\n.text\n");

static long (*const functions[])(const char *, long) = { bench_own_function, bench_own_gettimeofday };

/* ---- handlers ---- */

static int no_op(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe, (void)regs;
	return 0;
}

/* Vector registers must be saved around this handler: it uses one of them, but the library cannot prove which. */
static int use_vectors(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe, (void)regs;
	__asm__ volatile("pxor %%xmm15, %%xmm15" ::: "xmm15");
	return 0;
}

static long no_op_jumper(const char *text, long value)
{
	(void)text, (void)value;
	np_jprobe_return();
}

/* An event of 64 bytes, like an event of LKST: clock, ids, address, arguments. */
struct event {
	uint64_t clock;
	uint32_t process, thread;
	uint32_t kind, processor;
	uint64_t where, arguments[4];
};
_Static_assert(sizeof(struct event) == 64, "the record of the seed");
enum { EVENTS = 1024 };

static struct event events[EVENTS];
static uint64_t events_written;
static uint32_t own_process, own_thread;

static inline struct event *next_event(uint32_t kind, uint64_t where)
{
	struct event *event = &events[events_written++ % EVENTS];
	event->process = own_process;
	event->thread = own_thread;
	event->kind = kind;
	event->processor = 0;
	event->where = where;
	return event;
}

static inline uint64_t clock_now(void)
{
	uint32_t low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

static inline void record(uint32_t kind, uint64_t where, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	struct event *event = next_event(kind, where);
	event->clock = clock_now();
	event->arguments[0] = a;
	event->arguments[1] = b;
	event->arguments[2] = c;
	event->arguments[3] = d;
}

static int record_probe(struct np_probe *probe, struct np_regs *regs)
{
	record(1, (uint64_t)probe->addr, regs->rdi, regs->rsi, regs->rdx, *(uint64_t *)regs->rsp);
	return 0;
}

static int record_probe_without_clock(struct np_probe *probe, struct np_regs *regs)
{
	struct event *event = next_event(1, (uint64_t)probe->addr);
	event->clock = 0;
	event->arguments[0] = regs->rdi;
	event->arguments[1] = regs->rsi;
	event->arguments[2] = regs->rdx;
	event->arguments[3] = *(uint64_t *)regs->rsp;
	return 0;
}

static long record_jumper(const char *text, long value)
{
	record(2, 0, (uint64_t)text, (uint64_t)value, 0, 0);
	np_jprobe_return();
}

/* The static hook: code that a programmer compiles in at the place, LKST's way. */
static volatile int hook_is_on;
static __attribute__((noinline)) void hook(const char *text, long value)
{
	record(3, 0, (uint64_t)text, (uint64_t)value, 0, 0);
}

/* Kprobes up to 2.6.16: one lock around all handlers. */
static pthread_spinlock_t lock;
static uint64_t locked_hits;

static int count_locked(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe, (void)regs;
	pthread_spin_lock(&lock);
	locked_hits++;
	pthread_spin_unlock(&lock);
	return 0;
}

/* A known cost: time stamp counter ticks to be spent. */
static volatile uint64_t spin_ticks;

static int spin(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe, (void)regs;
	uint64_t end = clock_now() + spin_ticks;
	while (clock_now() < end)
		;
	return 0;
}

void bench_own_set_spin(uint64_t ticks)
{
	spin_ticks = ticks;
}

/* Indexed by src/own/mod.rs. */
const np_pre_handler bench_own_handlers[] = {
	no_op, record_probe, record_probe_without_clock, count_locked, spin, use_vectors,
};
void *const bench_own_jumpers[] = { (void *)no_op_jumper, (void *)record_jumper };

void bench_own_set_hook(int on)
{
	hook_is_on = on;
}

uint64_t bench_own_events(void)
{
	return events_written;
}

uint64_t bench_own_locked(void)
{
	return locked_hits;
}

/* ---- batches ---- */

void bench_own_begin(long thread)
{
	pin(thread);
	if (thread == 0) {
		own_process = (uint32_t)getpid();
		own_thread = (uint32_t)syscall(SYS_gettid);
		pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
	}
}

/* ns of this thread's processor time a call; negative when a result was wrong. */
double bench_own_batch(int function, int with_hook, long calls)
{
	long (*const called)(const char *, long) = functions[function];
	uint64_t start = processor_time();
	long value = 0;
	if (with_hook) {
		for (long i = 0; i < calls; i++) {
			if (hook_is_on)
				hook("hello DTrace", value);
			value = called("hello DTrace", value);
		}
	} else {
		for (long i = 0; i < calls; i++)
			value = called("hello DTrace", value);
	}
	return value == calls ? (double)(processor_time() - start) / (double)calls : -1.0;
}
