/* A library with an unwinder of its own: it looks for words on the stack that lead to the program's `inner`, or to
 * code that belongs to no file, like that of thunks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

__attribute__((visibility("default"), noinline)) int unw_backtrace(void *lowest, void *highest)
{
	int thunks = 0;
	for (uint64_t *word = lowest; word < (uint64_t *)highest; word++) {
		/* lea rsp, [rsp - 24]; push rax; mov eax: the thunk's first bytes. */
		Dl_info info;
		if (*word >> 40 == 0x7f && !dladdr((void *)*word, &info) && *(uint64_t *)*word << 8 == 0xb850e824648d4800)
			thunks++;
	}
	return thunks;
}

__attribute__((visibility("default"), noinline)) int plain_function(int value)
{
	__asm__ volatile("" ::: "memory");
	return value + 3;
}
