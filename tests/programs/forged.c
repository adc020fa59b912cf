/* A program whose arenas are forged: no tracer has ever attached to it.
 *
 *     forged [--wait] MODE PID
 *
 * MODE: "garbage": the arena holds random bytes; "other": it is an arena without sites that names process PID as the
 * traced process and as the tracer; "held": the same, and the program itself holds the lock of a live tracer; "empty":
 * the file has no page; "many": there are 100 arenas of garbage. */
#include <fcntl.h>
#include <sys/mman.h>
#include "check.h"

#define BYTES (1UL << 20)

static char *arena(size_t bytes, int is_held)
{
	int file = memfd_create("nanoprobe-fedcba9876543210", 0);
	CHECK(file >= 0 && ftruncate(file, (off_t)bytes) == 0);
	char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(memory != MAP_FAILED);
	if (is_held) {
		struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
		CHECK(fcntl(file, F_OFD_SETLK, &whole) == 0);
	} else {
		close(file);
	}
	return memory;
}

static void fill(char *memory)
{
	uint64_t seed = (uint64_t)(uintptr_t)memory;
	for (size_t byte = 0; byte < BYTES; byte++) {
		seed = seed * 6364136223846793005UL + 1442695040888963407UL;
		memory[byte] = (char)(seed >> 56);
	}
}

/* The head of an arena: all that precedes its tables. */
static void describe(char *memory, uint32_t pid)
{
	uint64_t *words = (uint64_t *)memory;
	words[0] = 0x424f52504f4e414eUL;           /* magic */
	words[1] = 1UL | 4096UL << 32;             /* version, control_bytes */
	words[2] = (uint64_t)(uintptr_t)memory;    /* arena_address */
	words[3] = BYTES;                          /* arena_bytes */
	words[4] = pid | 3UL << 32;                /* tracer_pid, state */
	words[62] = (uint64_t)pid << 32;           /* tid_offset, target_pid */
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	CHECK(argc > 2);
	const char *mode = argv[1];
	uint32_t pid = (uint32_t)number(argc, argv, 2, 0);
	if (strcmp(mode, "garbage") == 0)
		fill(arena(BYTES, 0));
	else if (strcmp(mode, "other") == 0)
		describe(arena(BYTES, 0), pid);
	else if (strcmp(mode, "held") == 0)
		describe(arena(BYTES, 1), pid);
	else if (strcmp(mode, "empty") == 0)
		arena(0, 0);
	else
		for (int count = 0; count < 100; count++)
			fill(arena(BYTES, 0));
	wait_for_go();
	printf("OK\n");
	return 0;
}
