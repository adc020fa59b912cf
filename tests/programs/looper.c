/* Calls a small function very often: the stress test of Gregg's "DTrace pid Provider Overhead".
 * looper [calls] */
#include "check.h"

PROBED int func(const char *input)
{
	return (int)strlen(input) + 1;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long calls = number(argc, argv, 1, 100000000);
	uint64_t sum = 0;
	for (long i = 0; i < calls; i++)
		sum += (uint64_t)func("hello DTrace");
	CHECK(sum == (uint64_t)calls * 13);
	printf("calls %ld\n", calls);
	return finish(mix(MIX_START, sum));
}
