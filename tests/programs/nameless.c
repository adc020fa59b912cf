/* Code that is made at run time and has no names: once in anonymous memory, once in a memfd. Both call `leaf` from the
 * same line. The program prints where a call returns to in each.
 *
 *     nameless [rounds] */
#include <sys/mman.h>
#include "check.h"

static volatile long total;

PROBED void leaf(void)
{
	total++;
}

/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long rounds = number(argc, argv, 1, 10);
	unsigned char *pages[2];
	pages[0] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages[0] != MAP_FAILED);
	memcpy(pages[0], code, sizeof code);
	CHECK(mprotect(pages[0], 4096, PROT_READ | PROT_EXEC) == 0);
	int file = memfd_create("made", 0);
	CHECK(file >= 0 && ftruncate(file, 4096) == 0 && pwrite(file, code, sizeof code, 0) == sizeof code);
	pages[1] = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
	CHECK(pages[1] != MAP_FAILED);
	wait_for_go();
	for (long i = 0; i < rounds * 2; i++) {
		void (*volatile made)(void (*)(void)) = (void (*)(void (*)(void)))pages[i % 2];
		made(leaf);
	}
	for (int i = 0; i < 2; i++)
		printf("returns %lu\n", (unsigned long)(pages[i] + 6));
	printf("done\n");
	wait_for_go();
	return finish(mix(MIX_START, (uint64_t)total));
}
