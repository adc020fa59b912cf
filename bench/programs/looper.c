/* The seed's looper.c ("DTrace pid Provider Overhead", 2011), word for word but for the number of calls:
 * looper [millions of calls, 100] */
#include <stdlib.h>
#include <string.h>

int
func(char *input)
{
	return (strlen(input) + 1);
}

int
main(int argc, char **argv)
{
	int i, j, sum = 0;
	int millions = argc > 1 ? atoi(argv[1]) : 100;

	for (i = 0; i < 10000 * millions; i++) {
		for (j = 0; j < 100; j++) {
			sum += func("hello DTrace");
		}
	}

	return (sum == 13 * 1000000 * millions ? 0 : 1);
}
