/* The functions that the test programs share: marking, checking, waiting, ending.
 *
 * A program prints its work as `name number` lines, a checksum, and OK. At the first wrong result it prints the place
 * and exits with 1. So a program without OK has noticed its probes. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A function whose calls are counted: never inlined, cloned, merged or evaluated by the compiler. */
#define PROBED __attribute__((noipa))

/* Uses the value of a call, so that the compiler can make neither a tail call nor a loop of the call.
 */
#define DO_AFTER_CALL(value) __asm__ volatile("" : "+r"(value))

#define CHECK(condition)                                                                                     \
	do {                                                                                                     \
		if (!(condition))                                                                                    \
			check_failed(__FILE__, __LINE__, #condition);                                                    \
	} while (0)

static inline void check_failed(const char *file, int line, const char *condition)
{
	printf("FAILED %s:%d: %s\n", file, line, condition);
	fflush(stdout);
	_exit(1);
}

/* FNV-1a, a step of 8 bytes. */
static inline uint64_t mix(uint64_t checksum, uint64_t value)
{
	for (int byte = 0; byte < 8; byte++)
		checksum = (checksum ^ ((value >> (8 * byte)) & 0xff)) * 0x100000001b3UL;
	return checksum;
}
#define MIX_START 0xcbf29ce484222325UL

static int check_wait;

/* Removes `--wait` from the arguments. Must be called first in main. */
static inline void take_arguments(int *argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (*argc < 2 || strcmp(argv[1], "--wait") != 0)
		return;
	memmove(&argv[1], &argv[2], sizeof(char *) * (size_t)(*argc - 1));
	*argc -= 1;
	check_wait = 1;
}

/* Waits for a line of input, or for the end of the input. */
static inline void wait_for_line(void)
{
	char byte;
	while (read(0, &byte, 1) == 1 && byte != '\n')
		;
}

/* After `--wait` the program prints that it is ready and waits for a line, so that a tracer can attach before the first
 * call. */
static inline void wait_for_go(void)
{
	if (!check_wait)
		return;
	printf("ready\n");
	fflush(stdout);
	wait_for_line();
}

static inline void begin(int *argc, char **argv)
{
	take_arguments(argc, argv);
	wait_for_go();
}

/* The argument as a number, or its default. */
static inline long number(int argc, char **argv, int index, long otherwise)
{
	return index < argc ? strtol(argv[index], NULL, 0) : otherwise;
}

static inline int finish(uint64_t checksum)
{
	printf("checksum %016lx\nOK\n", (unsigned long)checksum);
	fflush(stdout);
	return 0;
}

#endif
