/* Shared by the programs of seed_003.rs: each program is a list of statements, and checks the one that its argument
 * names.
 *
 *     program NAME FLAGS     checks one; FLAGS are those of every probe that it registers
 *     program                prints all names
 */
#ifndef CHECK_H
#define CHECK_H

#include <nanoprobe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A function to be probed, so the compiler must assume nothing about it. It is not instrumented by
 * ThreadSanitizer, whose code reads the return address, so that this could not be replaced. */
#define FUNCTION __attribute__((noinline, noclone, noipa, no_sanitize_thread))
#define OPAQUE __asm__ volatile("" ::: "memory")

#define CHECK(condition)                                                                                           \
	do {                                                                                                       \
		if (!(condition)) {                                                                                \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, np_last_error());      \
			_Exit(1);                                                                                  \
		}                                                                                                  \
	} while (0)

struct statement {
	const char *name;
	void (*check)(void);
};

#define STATEMENT(name) { #name, name }

/* The flags of all probes: NP_PROBE_NO_SIMD, NP_PROBE_TRAP, or 0. */
__attribute__((unused)) static unsigned flags;

static int check_one(const struct statement *statements, size_t count, int arguments, char **argument)
{
	for (size_t index = 0; index < count; index++) {
		if (arguments < 2)
			puts(statements[index].name);
		else if (!strcmp(statements[index].name, argument[1])) {
			flags = arguments > 2 ? (unsigned)atoi(argument[2]) : 0;
			statements[index].check();
			puts("holds");
			return 0;
		}
	}
	return arguments >= 2;
}

#define STATEMENTS(list)                                                                                           \
	int main(int arguments, char **argument)                                                                   \
	{                                                                                                          \
		return check_one(list, sizeof(list) / sizeof(list[0]), arguments, argument);                       \
	}

#endif
