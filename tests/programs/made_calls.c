/* System calls that no probe sees: of code that the program makes, and what it submits to an io_uring.
 *
 *     made_calls [rounds] [what]   what: c the code, u the io_uring; default: all */
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "check.h"

/* A ring of one entry, which stays mapped. 0: the kernel permits none. */
static int has_ring(void)
{
	struct io_uring_params parameters = { 0 };
	int ring = (int)syscall(SYS_io_uring_setup, 1, &parameters);
	if (ring < 0)
		return 0;
	void *entries = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	CHECK(entries != MAP_FAILED);
	return 1;
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long rounds = number(argc, argv, 1, 10);
	const char *what = argc > 2 ? argv[2] : "cu";
	/* mov $110, %eax; syscall; ret: getppid */
	static const unsigned char code[] = { 0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3 };
	unsigned char *page = NULL;
	int ring = 0;
	if (strchr(what, 'c')) {
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(page != MAP_FAILED);
		memcpy(page + 64, code, sizeof code);
		CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
	}
	if (strchr(what, 'u'))
		ring = has_ring();
	wait_for_go();
	long (*volatile made)(void) = (long (*)(void))(page + 64);
	for (long i = 0; i < rounds; i++) {
		CHECK(getppid() > 0);
		if (page)
			CHECK(made() == getppid());
	}
	printf("getppid %ld\nring %d\n", page ? 2 * rounds : rounds, ring);
	return finish(mix(MIX_START, (uint64_t)rounds));
}
