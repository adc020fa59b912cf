/* Inlined copies and lines, optimised. Counted values are stored to volatile memory, so that nothing is folded away.
 *
 *     inlined [rounds] */
#include <stdio.h>
#include <stdlib.h>
#include "check.h"

#define INLINED static inline __attribute__((always_inline))

enum way { UP = 1, DOWN = -1 };

static volatile long total, seen;
static const char *volatile words[] = { "one", "three" };

INLINED long add(long amount, const char *text, int scale, enum way way)
{
	total = amount; /* line: add */
	seen = scale;
	return total + text[0] + way;
}

/* A function that is inlined at direct calls, and also exists out of line for callers that use its address. */
INLINED long both(long amount)
{
	total = amount + 1; /* line: both */
	return total;
}

/* A call has its seventh argument on the stack; a copy has no argument there. */
INLINED long many(long a, long b, long c, long d, long e, long f, long g, double real)
{
	total = a + b + c + d + e + f + g;
	seen = (long)real;
	return total;
}

static long (*volatile pointer)(long) = both;

PROBED long once(long amount)
{
	return add(amount, words[0], 2, UP);
}

PROBED long thrice(long amount, long times)
{
	long sum = 0;
#pragma GCC unroll 1
	for (long i = 0; i < times; i++)
		sum += add(amount + i, words[1], -1, DOWN);
	return sum;
}

PROBED long plain(long amount)
{
	total = amount;

	/* no code on this line: nothing */
	total = -amount;
	return both(amount) + many(amount, 2, 3, 4, 5, 6, 7, 8.5);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long rounds = number(argc, argv, 1, 10), sum = 0;
	wait_for_go();
	for (long round = 0; round < rounds; round++) {
		sum += once(round);
		sum += thrice(100, 3);
		sum += plain(round);
		sum += pointer(round);
	}
	printf("%ld\n", sum);
	return finish(mix(MIX_START, (uint64_t)sum));
}
