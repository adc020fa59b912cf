/* See ends.c. */
#include <stdint.h>

uint64_t call_the_other_twin(uint64_t value);

static __attribute__((noinline, noclone)) uint64_t twin(uint64_t value)
{
	__asm__ volatile("" ::: "memory");
	return value + 2;
}

uint64_t call_the_other_twin(uint64_t value)
{
	return twin(value);
}
