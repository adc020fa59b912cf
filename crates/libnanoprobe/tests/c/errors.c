/* Handlers reach errno in several ways, and afterwards errno is unchanged. It is not saved for a handler that provably
 * leaves it alone. */
#define _GNU_SOURCE
#include <nanoprobe.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone))

enum { BEFORE = 5 };

static int *pointer;
static uint64_t came;

FUNCTION uint64_t probed(uint64_t value)
{
	__asm__ volatile("" ::: "memory");
	return value + 1;
}

static void by_call(void)
{
	errno = 77;
}

static void by_system_call(void)
{
	close(-1);
}

static void by_pointer(void)
{
	*pointer = 78;
}

static void by_thread_pointer(void)
{
	__asm__ volatile("movq errno@gottpoff(%%rip), %%rax\n\tmovl $79, %%fs:(%%rax)" ::: "rax", "memory");
}

FUNCTION void store(int *where, int value)
{
	*where = value;
}

static void by_function_of_its_own(void)
{
	store(pointer, 80);
}

static void by_distance(void)
{
	/* The handler sets errno from a variable of its own. */
	static char here[1];
	volatile int64_t distance = (char *)pointer - here;
	__asm__ volatile("movl $81, (%0,%1)" : : "r"(here), "r"(distance) : "memory");
}

static void by_string(void)
{
	int *to = pointer;
	uint64_t count = 1;
	__asm__ volatile("rep stosl" : "+D"(to), "+c"(count) : "a"(82) : "memory");
}

static void not_at_all(void)
{
}

#define HANDLERS(way)                                                                                              \
	static int way##_before(struct np_probe *probe, struct np_regs *regs)                                      \
	{                                                                                                          \
		(void)probe;                                                                                       \
		(void)regs;                                                                                        \
		came++;                                                                                            \
		way();                                                                                             \
		return 0;                                                                                          \
	}                                                                                                          \
	static int way##_behind(struct np_retprobe_instance *call, struct np_regs *regs)                           \
	{                                                                                                          \
		(void)call;                                                                                        \
		return way##_before(NULL, regs);                                                                   \
	}
HANDLERS(by_call)
HANDLERS(by_system_call)
HANDLERS(by_pointer)
HANDLERS(by_thread_pointer)
HANDLERS(by_function_of_its_own)
HANDLERS(by_distance)
HANDLERS(by_string)
HANDLERS(not_at_all)

static const struct {
	const char *name;
	np_pre_handler before;
	np_retprobe_handler behind;
} ways[] = {
#define WAY(way) { #way, way##_before, way##_behind }
	WAY(by_call), WAY(by_system_call), WAY(by_pointer), WAY(by_thread_pointer), WAY(by_function_of_its_own),
	WAY(by_distance), WAY(by_string), WAY(not_at_all),
};

static void check(int error)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s\n", np_strerror(error), np_last_error());
	exit(1);
}

static uint64_t wrong;

static void calls(void)
{
	for (uint64_t round = 0; round < 10; round++) {
		errno = BEFORE;
		uint64_t result = probed(round);
		int error = errno;
		wrong += result != round + 1 || error != BEFORE;
	}
}

int main(void)
{
	static const unsigned flags[] = { 0, NP_PROBE_NO_SIMD, NP_PROBE_TRAP };
	pointer = &errno;
	for (unsigned index = 0; index < sizeof(ways) / sizeof(*ways); index++) {
		wrong = came = 0;
		for (int flag = 0; flag < 3; flag++) {
			struct np_probe plain = { NP_SIZE(struct np_probe), .addr = probed, .pre_handler = ways[index].before,
						  .flags = flags[flag] };
			check(np_register_probe(&plain));
			calls();
			check(np_unregister_probe(&plain));
			for (int form = NP_RETPROBE_EXITS; form <= NP_RETPROBE_ADDRESS; form++)
				for (int entry = 0; entry < 2; entry++) {
					struct np_retprobe returns = {
						{ NP_SIZE(struct np_retprobe), .addr = probed, .flags = flags[flag] },
						.handler = ways[index].behind, .form = form,
						.entry_handler = entry ? ways[index].behind : NULL
					};
					check(np_register_retprobe(&returns));
					calls();
					check(np_unregister_retprobe(&returns));
				}
		}
		printf("%s: %lu came, %lu wrong\n", ways[index].name, came, wrong);
	}
	return 0;
}
