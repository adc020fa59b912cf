/* own: reads numbers, one in each line. For each number, fires that many rounds of all probes, and prints which
 * probes are traced. The source is valid C and C++, of any standard. */
#include <stdio.h>
#include <stdlib.h>
#include "own.h"

typedef unsigned char boolean;
enum color { RED, GREEN };
struct point { int x; unsigned y : 5; };

void other(long i);
int other_enabled(void);
int prepared;

static void fire(int i)
{
	struct point point = { 3, 21 };
	char text[8] = "array";
	char letter = 'a';

	point.x += i;
	letter = (char)(letter + i);
	text[0] = letter;
	OWN_NONE();
	OWN_ONE(-1 - i);
	OWN_TWO((signed char)(-100 - i), (unsigned char)(200 + i));
	OWN_THREE((short)(-30000 - i), (unsigned short)(60000 + i), (boolean)(i == 0));
	OWN_FOUR(-5000000000L - i, 18000000000000000000UL + (unsigned long)i, "constant", text);
	if (i % 2)
		OWN_FIVE(GREEN, &point, point.y, 7, 4000000000U);
	else
		OWN_FIVE(RED, &point, point.y, 7, 4000000000U);
	OWN_SIX(i, 2, 3, 4, 5, 6);
	OWN_SEVEN(i, 2, 3, 4, 5, 6, 7);
	OWN_EIGHT(i, 2, 3, 4, 5, 6, 7, 8);
	OWN_NINE(i, 2, 3, 4, 5, 6, 7, 8, 9);
	OWN_TEN(i, i - 2, i + 3, i - 4, i + 5, i - 6, i + 7, i - 8, i + 9, (long)i - 10);
	if (OWN_QUERY_START_HERE_ENABLED()) {
		prepared++;
		OWN_QUERY_START_HERE(text);
	}
}

int main(void)
{
	char line[64];
	int i, rounds;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	while (fgets(line, sizeof line, stdin)) {
		rounds = atoi(line);
		for (i = 0; i < rounds; i++) {
			fire(i);
			other(i);
		}
		printf("none %d one %d query %d other %d prepared %d\n", OWN_NONE_ENABLED(), OWN_ONE_ENABLED(),
			OWN_QUERY_START_HERE_ENABLED(), other_enabled(), prepared);
	}
	return 0;
}
