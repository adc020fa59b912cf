/* A process that has almost as many mappings as it may have. Argument: how many more it may have. A line on stdin
 * ends it. */
#include <sys/mman.h>
#include "check.h"

PROBED uint64_t func(uint64_t value)
{
	return value + 1;
}

enum { MAPPINGS_MAX = 1 << 20 };
static void *made[MAPPINGS_MAX];

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long left = number(argc, argv, 1, 3), count = 0;
	/* The kernel does not merge neighbours that differ. */
	while (count < MAPPINGS_MAX) {
		int protection = count % 2 ? PROT_READ : PROT_NONE;
		void *place = mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (place == MAP_FAILED)
			break;
		made[count++] = place;
	}
	for (long i = 0; i < left; i++)
		CHECK(munmap(made[count / 2 + 2 * i], 4096) == 0);
	wait_for_go();
	for (uint64_t value = 0; value < 1000; value++)
		CHECK(func(value) == value + 1);
	return finish((uint64_t)(count < MAPPINGS_MAX));
}
