/* Structures of older and newer headers than the library's. */
#include <nanoprobe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline, noclone, noipa)) int plain(int value)
{
	__asm__ volatile("" ::: "memory");
	return value + 1;
}

static int returned;

static int on_return(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	(void)instance;
	(void)regs;
	returned++;
	return 0;
}

static uint64_t watched;

/* Each structure as a newer header may define it: with further fields at its end. */
struct larger {
	union {
		struct np_probe probe;
		struct np_retprobe retprobe;
		struct np_watchpoint watchpoint;
		unsigned char bytes[512];
	};
};

static void fill(struct larger *structures, const size_t *sizes)
{
	memset(structures, 0, 3 * sizeof(*structures));
	structures[0].probe = (struct np_probe){ .size = sizes[0], .addr = (void *)plain };
	structures[1].retprobe = (struct np_retprobe){ { .size = sizes[1], .addr = (void *)plain }, .handler = on_return };
	structures[2].watchpoint = (struct np_watchpoint){ .size = sizes[2], .addr = &watched, .length = 8,
							   .type = NP_WATCH_WRITE };
}

/* On a machine without free debug registers the watchpoint is refused, but not with NP_ERROR_ARGUMENT. */
static int answer(int error)
{
	switch (error) {
	case NP_ERROR_UNSUPPORTED:
	case NP_ERROR_PERMISSION:
	case NP_ERROR_NO_WATCHPOINT:
		return 0;
	}
	return error;
}

static void report(const char *what, struct larger *structures)
{
	int errors[] = { np_register_probe(&structures[0].probe), np_register_retprobe(&structures[1].retprobe),
			 np_register_watchpoint(&structures[2].watchpoint) };
	returned = 0;
	if (plain(1) != 2 || returned != !errors[1] || (!errors[0] && np_probe_hits(&structures[0].probe) != 1))
		abort();
	printf("%s: %d %d %d\n", what, errors[0], errors[1], answer(errors[2]));
	if (!errors[0] && np_unregister_probe(&structures[0].probe))
		abort();
	if (!errors[1] && np_unregister_retprobe(&structures[1].retprobe))
		abort();
	if (!errors[2] && np_unregister_watchpoint(&structures[2].watchpoint))
		abort();
}

int main(void)
{
	static struct larger structures[3];
	static const size_t sizes[] = { sizeof(struct np_probe), sizeof(struct np_retprobe), sizeof(struct np_watchpoint) };
	size_t changed[3];
	for (int index = 0; index < 3; index++)
		changed[index] = sizes[index] - 8;
	fill(structures, changed);
	report("smaller", structures);
	for (int index = 0; index < 3; index++)
		changed[index] = sizes[index] + 64;
	fill(structures, changed);
	report("larger", structures);
	fill(structures, changed);
	for (int index = 0; index < 3; index++)
		structures[index].bytes[sizes[index] + 63] = 1;
	report("larger and set", structures);
	memset(changed, 0, sizeof(changed));
	fill(structures, changed);
	report("no size", structures);
	return 0;
}
