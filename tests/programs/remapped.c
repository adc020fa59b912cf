/* A part of the program's own text, mapped once more, as V8 maps its builtins. Arguments: the number of calls in the
 * second mapping, and in the first. */
#include <fcntl.h>
#include <sys/mman.h>
#include "check.h"

enum { PAGE = 4096 };

/* The function is alone on its page, and works at any address. */
__attribute__((noipa, aligned(4096), section(".text.builtin"))) uint64_t builtin(uint64_t value)
{
	return value * 3 + 1;
}
__attribute__((noipa, aligned(4096), section(".text.builtin"))) uint64_t behind_it(uint64_t value)
{
	return value + 2;
}

/* The offset of an address in its file. */
static off_t offset_of(uint64_t address)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end, offset;
	char line[512];
	CHECK(maps);
	while (fgets(line, sizeof line, maps)) {
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && start <= address && address < end) {
			fclose(maps);
			return (off_t)(offset + address - start);
		}
	}
	CHECK(!"mapped");
	return 0;
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	int file = open("/proc/self/exe", O_RDONLY);
	uint8_t *copy = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, offset_of((uint64_t)builtin));
	CHECK(copy != MAP_FAILED && memcmp(copy, (void *)builtin, 8) == 0);
	uint64_t (*volatile there)(uint64_t) = (uint64_t (*)(uint64_t))copy;
	wait_for_go();
	for (long i = 0; i < number(argc, argv, 1, 100); i++)
		CHECK(there((uint64_t)i) == (uint64_t)i * 3 + 1);
	for (long i = 0; i < number(argc, argv, 2, 10); i++)
		CHECK(builtin((uint64_t)i) == (uint64_t)i * 3 + 1 && behind_it(1) == 3);
	return finish(7);
}
