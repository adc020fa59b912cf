/* Code that is made at run time, with its name in /tmp/perf-PID.map. It calls `leaf`. The program prints the path of
 * the map.
 *
 *     jit [rounds] */
#include <fcntl.h>
#include <sys/mman.h>
#include "check.h"

static volatile long total;

PROBED void leaf(void)
{
	total++;
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long rounds = number(argc, argv, 1, 10);
	/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
	static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
	char path[64];
	unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	memcpy(page + 64, code, sizeof code);
	CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
	snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
	int map = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	CHECK(map >= 0);
	dprintf(map, "%lx %zx ~made here jit.js:7\nnonsense\n", (unsigned long)(page + 64), sizeof code);
	close(map);
	wait_for_go();
	void (*volatile made)(void (*)(void)) = (void (*)(void (*)(void)))(page + 64);
	for (long i = 0; i < rounds; i++)
		made(leaf);
	printf("map %s\n", path);
	return finish(mix(MIX_START, (uint64_t)total));
}
