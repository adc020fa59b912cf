/* Calls a function with good and bad string pointers, which it does not read. In each round, `good` pointers lead to a
 * text, and `bad` ones to memory that cannot be read.
 *
 *     strings [rounds] */
#include <sys/mman.h>
#include "check.h"

PROBED uint64_t takes(const char *text, long size)
{
	return (uint64_t)size + (text == NULL);
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long rounds = number(argc, argv, 1, 10);
	long page = sysconf(_SC_PAGESIZE);
	char *three = mmap(NULL, (size_t)page * 3, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(three != MAP_FAILED);
	CHECK(munmap(three + page, (size_t)page) == 0);
	CHECK(mprotect(three + 2 * page, (size_t)page, PROT_NONE) == 0);
	memset(three, 'x', (size_t)page);
	strcpy(three + page - 9, "page end"); /* the string's NUL is the page's last byte */
	char long_text[2000];
	memset(long_text, 'l', sizeof long_text - 1);
	long_text[sizeof long_text - 1] = 0;

	uint64_t sum = 0;
	for (long round = 0; round < rounds; round++) {
		sum += takes("plain", 5);
		sum += takes("", 0);
		sum += takes("caf\303\251 \001\t", 8);
		sum += takes(three + page - 9, 8);
		sum += takes(long_text, 1999);

		sum += takes(NULL, 1);
		sum += takes((char *)16, 1);
		sum += takes(three + page, 1);
		sum += takes(three + 2 * page, 1);
		sum += takes((char *)0x1234567890abcdefUL, 1);  /* not canonical */
		sum += takes((char *)0xffffffff81000000UL, 1);  /* the kernel's */
		/* This text has no NUL before the end of the mapped memory. */
		three[page - 1] = 'x';
		sum += takes(three + page - 4, 1);
		three[page - 1] = 0;
	}
	CHECK(sum == (uint64_t)rounds * (5 + 0 + 8 + 8 + 1999 + 7 + 1));
	printf("good %ld\nbad %ld\n", rounds * 5, rounds * 7);
	return finish(mix(MIX_START, sum));
}
