/* 1500 functions are probed one by one, and unprobed one by one. Meanwhile two threads hit breakpoints all the
 * time, and each step replaces the tables of redirects. */
#include <nanoprobe.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define ONE(number)                                                                                                \
	__attribute__((noinline, noclone, noipa)) int function##number(int value)                                 \
	{                                                                                                          \
		__asm__ volatile("" ::: "memory");                                                                 \
		return value * 3 + number;                                                                         \
	}
#define TEN(of, number) of(number##0) of(number##1) of(number##2) of(number##3) of(number##4) of(number##5) of(number##6) \
	of(number##7) of(number##8) of(number##9)
#define HUNDRED(of, number) TEN(of, number##0) TEN(of, number##1) TEN(of, number##2) TEN(of, number##3) TEN(of, number##4) \
	TEN(of, number##5) TEN(of, number##6) TEN(of, number##7) TEN(of, number##8) TEN(of, number##9)
#define ALL(of) HUNDRED(of, 1) HUNDRED(of, 2) HUNDRED(of, 3) HUNDRED(of, 4) HUNDRED(of, 5) HUNDRED(of, 6) HUNDRED(of, 7) \
	HUNDRED(of, 8) HUNDRED(of, 9) HUNDRED(of, 10) HUNDRED(of, 11) HUNDRED(of, 12) HUNDRED(of, 13) HUNDRED(of, 14)     \
	HUNDRED(of, 15)
ALL(ONE)

#define NAME(number) function##number,
static int (*const functions[])(int) = { ALL(NAME) };
enum { COUNT = sizeof(functions) / sizeof(functions[0]) };

__attribute__((noinline, noclone, noipa)) int trapped(int value)
{
	__asm__ volatile("" ::: "memory");
	return value + 5;
}

static int stop;

static void *runs(void *unused)
{
	for (int value = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); value++)
		if (trapped(value & 0xff) != (value & 0xff) + 5)
			abort();
	return unused;
}

static int before(struct np_probe *probe, struct np_regs *regs)
{
	(void)regs;
	++*(int *)probe->user;
	return 0;
}

static void check(int error)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s\n", np_strerror(error), np_last_error());
	exit(1);
}

int main(void)
{
	static struct np_probe probes[COUNT];
	static int hits[COUNT];
	pthread_t threads[2];
	struct np_probe trap = { NP_SIZE(struct np_probe), .addr = (void *)trapped, .flags = NP_PROBE_TRAP };
	check(np_register_probe(&trap));
	for (int index = 0; index < 2; index++)
		pthread_create(&threads[index], NULL, runs, NULL);
	for (int index = 0; index < COUNT; index++) {
		probes[index] = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)functions[index],
						   .pre_handler = before, .user = &hits[index] };
		check(np_register_probe(&probes[index]));
	}
	int right = 0;
	for (int index = 0; index < COUNT; index++)
		right += functions[index](7) == 21 + 100 + index && hits[index] == 1;
	for (int index = 0; index < COUNT; index++)
		check(np_unregister_probe(&probes[index]));
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int index = 0; index < 2; index++)
		pthread_join(threads[index], NULL);
	printf("%d of %d, the others %s\n", right, COUNT, np_probe_nmissed(&trap) ? "missed" : "whole");
	return 0;
}
