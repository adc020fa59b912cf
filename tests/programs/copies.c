/* Calls of the C library's memcpy, which is one of several functions of several names, by the
 * processor. Argument: how many. */
#include "check.h"

static char from[256], to[256];

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long amount = number(argc, argv, 1, 100);
	/* Of a size that the compiler does not know. */
	void *(*volatile copy)(void *, const void *, size_t) = memcpy;
	volatile size_t bytes = 200;
	for (long i = 0; i < amount; i++) {
		from[i % 200] = (char)i;
		CHECK(copy(to, from, bytes) == to && to[i % 200] == (char)i);
	}
	/* Without a word of output, which would copy. */
	_exit(0);
}
