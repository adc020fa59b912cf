/* Calls `left` and `right` as often as its arguments say, from `work`, and works in each in proportion. The two
 * functions differ, because the compiler would make one function of two equal ones. */
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned long sum;

__attribute__((noinline)) static void left(unsigned long rounds)
{
	for (unsigned long i = 0; i < rounds; i++)
		sum += i;
}

__attribute__((noinline)) static void right(unsigned long rounds)
{
	for (unsigned long i = 0; i < rounds; i++)
		sum -= i;
}

__attribute__((noinline)) static void work(int lefts, int rights, unsigned long rounds)
{
	for (int i = 0; i < lefts; i++)
		left(rounds);
	for (int i = 0; i < rights; i++)
		right(rounds);
	sum++;
}

int main(int count, char **arguments)
{
	if (count != 4)
		return 2;
	work(atoi(arguments[1]), atoi(arguments[2]), strtoul(arguments[3], NULL, 0));
	puts("OK");
	return 0;
}
