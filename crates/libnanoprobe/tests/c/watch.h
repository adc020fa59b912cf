/* Shared by the programs of watch.rs. Each program is a list of parts; argv[1] names the part to run. If the machine
 * refuses a watchpoint, the program prints "left out: ..." and ends. */
#ifndef WATCH_H
#define WATCH_H

#include <nanoprobe.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone))
#define OPAQUE __asm__ volatile("" ::: "memory")

static void check(int error, const char *what)
{
	if (!error)
		return;
	if (error == NP_ERROR_UNSUPPORTED || error == NP_ERROR_PERMISSION) {
		printf("left out: %s\n", np_last_error());
		fflush(stdout);
		_exit(0);
	}
	fprintf(stderr, "%s: %s: %s\n", what, np_strerror(error), np_last_error());
	_exit(1);
}

static volatile uint64_t watched;
static _Atomic uint64_t ran, wrong;

FUNCTION void writes(uint64_t value)
{
	watched = value;
	OPAQUE;
}

FUNCTION uint64_t doubled(uint64_t value)
{
	OPAQUE;
	return value * 2;
}

static void counts(struct np_watchpoint *watchpoint, struct np_regs *regs)
{
	(void)watchpoint;
	(void)regs;
	ran++;
}

struct part {
	const char *name;
	void (*function)(void);
};

static int run_part(const struct part *parts, size_t number, int count, char **arguments)
{
	for (size_t index = 0; index < number; index++)
		if (count < 2 || !strcmp(arguments[1], parts[index].name))
			parts[index].function();
	return 0;
}

#define PARTS(...)                                                                                                         \
	int main(int count, char **arguments)                                                                              \
	{                                                                                                                  \
		static const struct part parts[] = { __VA_ARGS__ };                                                        \
		return run_part(parts, sizeof(parts) / sizeof(*parts), count, arguments);                                  \
	}

#endif
