/* Four threads register, unregister, enable and disable probes of all kinds at random. The probed functions are
 * run by four other threads, which check the results. argv[1]: rounds of each of the first four; argv[2]: for how
 * many seconds at least. */
#include <nanoprobe.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FUNCTION __attribute__((noinline, noclone))
#define OPAQUE __asm__ volatile("" ::: "memory")
/* A function that ThreadSanitizer instruments reads its return address, so the address cannot be
 * replaced. PLAIN functions are not instrumented. */
#define PLAIN FUNCTION __attribute__((no_sanitize_thread))
#ifdef __SANITIZE_THREAD__
enum { READS_RETURN_ADDRESS = 1 };
#else
enum { READS_RETURN_ADDRESS = 0 };
#endif
enum { THREADS = 4, FUNCTIONS = 4 };

PLAIN uint64_t first(uint64_t value)
{
	OPAQUE;
	return value * 3 + 1;
}

FUNCTION uint64_t second(uint64_t value)
{
	OPAQUE;
	return value < 3 ? value : second(value - 1) + second(value - 3);
}

FUNCTION uint64_t third(uint64_t value)
{
	uint64_t sum = first(value);
	OPAQUE;
	return sum + 1;
}

PLAIN uint64_t fourth(uint64_t value)
{
	OPAQUE;
	switch (value & 3) {
	case 0:
		return value / 7;
	case 1:
		return first(value);
	default:
		return third(value); /* a tail call */
	}
}

static uint64_t (*volatile const functions[FUNCTIONS])(uint64_t) = { first, second, third, fourth };
static uint64_t expected[FUNCTIONS][16];
static int stop;
static time_t end;
static __thread uint64_t state;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void check(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, np_strerror(error), np_last_error());
	abort();
}

static void *runs(void *number)
{
	uint64_t calls = 0;
	state = (uintptr_t)number + 77;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		uint64_t which = next() % FUNCTIONS, value = next() % 16;
		if (functions[which](value) != expected[which][value])
			abort();
		calls++;
	}
	return (void *)calls;
}

static int before(struct np_probe *probe, struct np_regs *regs)
{
	if (probe->size != sizeof(*probe) || probe->user != probe || regs->rip == 0)
		abort();
	return 0;
}

static void behind(struct np_probe *probe, struct np_regs *regs, unsigned long flags)
{
	if (probe->user != probe || regs->rip == 0 || flags)
		abort();
}

static int enters(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	*(uint64_t *)instance->data = regs->rdi;
	return instance->retprobe->probe.user != instance->retprobe;
}

static int returns(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	uint64_t value = *(uint64_t *)instance->data;
	if (value > 16 || regs->rsp != (uint64_t)instance->frame + 8)
		abort();
	return 0;
}

static void *changes(void *rounds)
{
	static _Atomic uint64_t seeds;
	state = 1000 + ++seeds;
	for (uintptr_t round = 0; round < (uintptr_t)rounds || time(NULL) < end; round++) {
		void *function = (void *)functions[next() % FUNCTIONS];
		unsigned flags = (unsigned)(next() & (NP_PROBE_DISABLED | NP_PROBE_NO_SIMD | NP_PROBE_TRAP));
		/* The structure is overwritten once it is unregistered: a thread that still reads it finds nonsense. */
		if (next() & 1) {
			struct np_probe probe = { NP_SIZE(struct np_probe), .addr = function, .pre_handler = before,
						  .flags = flags, .user = &probe };
			if (next() & 1)
				probe.post_handler = behind;
			check(np_register_probe(&probe), "register");
			for (uint64_t times = next() % 4; times; times--)
				check(next() & 1 ? np_enable_probe(&probe) : np_disable_probe(&probe), "switch");
			check(np_unregister_probe(&probe), "unregister");
			memset(&probe, 0xee, sizeof(probe));
		} else {
			struct np_retprobe probe = { { NP_SIZE(struct np_retprobe), .addr = function, .flags = flags,
						       .user = &probe },
						     .handler = returns, .entry_handler = enters, .data_size = 8,
						     .maxactive = (int)(next() % 3) * 8,
						     .form = next() & 1 ? NP_RETPROBE_ADDRESS : NP_RETPROBE_AUTO };
			int error = np_register_retprobe(&probe);
			if (READS_RETURN_ADDRESS && error == NP_ERROR_RETURN_ADDRESS &&
			    (function == (void *)second || function == (void *)third))
				continue;
			check(error, "register");
			for (uint64_t times = next() % 4; times; times--)
				check(next() & 1 ? np_enable_probe(&probe.probe) : np_disable_probe(&probe.probe), "switch");
			check(np_unregister_retprobe(&probe), "unregister");
			memset(&probe, 0xee, sizeof(probe));
		}
	}
	return NULL;
}

static int counts(const struct np_info *info, void *count)
{
	(void)info;
	++*(int *)count;
	return 0;
}

int main(int count, char **arguments)
{
	pthread_t threads[2 * THREADS];
	uintptr_t rounds = count > 1 ? strtoul(arguments[1], NULL, 10) : 100;
	end = count > 2 ? time(NULL) + strtol(arguments[2], NULL, 10) : 0;
	unsigned char text[FUNCTIONS][16];
	for (int which = 0; which < FUNCTIONS; which++) {
		memcpy(text[which], (void *)functions[which], 16);
		for (uint64_t value = 0; value < 16; value++)
			expected[which][value] = functions[which](value);
	}
	for (uintptr_t index = 0; index < THREADS; index++) {
		pthread_create(&threads[index], NULL, changes, (void *)rounds);
		pthread_create(&threads[THREADS + index], NULL, runs, (void *)index);
	}
	for (int index = 0; index < THREADS; index++)
		pthread_join(threads[index], NULL);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	int idle = 0, left = 0, changed = 0;
	for (int index = THREADS; index < 2 * THREADS; index++) {
		void *calls;
		pthread_join(threads[index], &calls);
		idle += calls == NULL;
	}
	np_list(counts, &left);
	for (int which = 0; which < FUNCTIONS; which++)
		changed += memcmp(text[which], (void *)functions[which], 16) != 0;
	printf("%d idle, %d left, %d changed\n", idle, left, changed);
	return 0;
}
