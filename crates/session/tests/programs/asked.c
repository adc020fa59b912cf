/* Calls `probed(1)`, `probed(2)` and so on, as often as each line of its input says, and then prints how often it
 * has called so far. */
#include <stdio.h>

static volatile long total;

__attribute__((noinline)) long probed(long number)
{
	total += number != 0;
	return number;
}

int main(void)
{
	long calls;
	setvbuf(stdout, NULL, _IONBF, 0);
	printf("ready\n");
	while (scanf("%ld", &calls) == 1) {
		for (long number = 1; number <= calls; number++)
			probed(number);
		printf("%ld\n", total);
	}
	return 0;
}
