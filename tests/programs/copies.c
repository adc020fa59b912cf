/* Calls of the C library's memcpy, which stands for one of several functions, chosen by the processor. Argument:
 * the number of calls. */
#include "check.h"

static char from[256], to[256];

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long amount = number(argc, argv, 1, 100);
	/* The size is unknown to the compiler. */
	void *(*volatile copy)(void *, const void *, size_t) = memcpy;
	volatile size_t bytes = 200;
	for (long i = 0; i < amount; i++) {
		from[i % 200] = (char)i;
		CHECK(copy(to, from, bytes) == to && to[i % 200] == (char)i);
	}
	/* Prints nothing, because printing would copy. */
	_exit(0);
}
