/* The library's messages to ThreadSanitizer: argv[1] is "none", and the sanitizer must report nothing, or "race". A
 * handler reads data that was written before the registration, and writes data that is read after the removal. Only the
 * library orders these accesses. */
#include <nanoprobe.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBED __attribute__((noinline, noclone, no_sanitize_thread))

PROBED uint64_t twice(uint64_t value)
{
	__asm__ volatile("" ::: "memory");
	return 2 * value;
}

static int stop, racing, arrived;
static uint64_t shared;

static void *runs(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		if (twice(4) != 8)
			abort();
	return unused;
}

struct context {
	uint64_t input, output;
};

static void look(struct context *context)
{
	if (context->input != 77)
		abort();
	/* Two threads do this at the same time. With "race" nothing orders them. */
	__atomic_store_n(&context->output, context->input, __ATOMIC_RELAXED);
	if (!__atomic_load_n(&racing, __ATOMIC_RELAXED))
		return;
	/* A handler that ends before the other thread's handler begins is ordered before it. So the two wait for each
	 * other, by relaxed accesses, which order nothing. */
	if (__atomic_load_n(&arrived, __ATOMIC_RELAXED) < 2) {
		__atomic_add_fetch(&arrived, 1, __ATOMIC_RELAXED);
		while (__atomic_load_n(&arrived, __ATOMIC_RELAXED) < 2)
			;
	}
	shared++;
}

static int before(struct np_probe *probe, struct np_regs *regs)
{
	(void)regs;
	look(probe->user);
	return 0;
}

static void behind(struct np_probe *probe, struct np_regs *regs, unsigned long none)
{
	(void)regs;
	(void)none;
	look(probe->user);
}

static int enters(struct np_retprobe_instance *call, struct np_regs *regs)
{
	*(uint64_t *)call->data = regs->rdi;
	return 0;
}

static int returns(struct np_retprobe_instance *call, struct np_regs *regs)
{
	if (regs->rax != 2 * *(uint64_t *)call->data)
		abort();
	look(call->retprobe->probe.user);
	return 0;
}

static void check(int error)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s\n", np_strerror(error), np_last_error());
	exit(1);
}

static struct context *made(void)
{
	struct context *context = malloc(sizeof(*context));
	*context = (struct context){ 77, 0 };
	return context;
}

static void gone(struct context *context)
{
	if (context->output != 77)
		abort();
	free(context);
}

static void wait_for(const struct np_probe *probe)
{
	while (np_probe_hits(probe) < 50)
		;
}

int main(int count, char **arguments)
{
	pthread_t threads[2];
	__atomic_store_n(&racing, count > 1 && !strcmp(arguments[1], "race"), __ATOMIC_RELAXED);
	for (int index = 0; index < 2; index++)
		pthread_create(&threads[index], NULL, runs, NULL);
	for (int round = 0; round < 10; round++) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)twice, .user = made() };
		if (round & 1)
			probe.post_handler = behind;
		else
			probe.pre_handler = before;
		check(np_register_probe(&probe));
		wait_for(&probe);
		check(np_unregister_probe(&probe));
		gone(probe.user);
		struct np_retprobe retprobe = { { NP_SIZE(struct np_retprobe), .addr = (void *)twice, .user = made() },
						.handler = returns, .entry_handler = enters, .data_size = 8,
						.form = round & 1 ? NP_RETPROBE_ADDRESS : NP_RETPROBE_EXITS };
		check(np_register_retprobe(&retprobe));
		wait_for(&retprobe.probe);
		check(np_unregister_retprobe(&retprobe));
		gone(retprobe.probe.user);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int index = 0; index < 2; index++)
		pthread_join(threads[index], NULL);
	puts("done");
	return 0;
}
