/* A program that damages a tracer's memory in it. As long as it runs, a thread writes random bytes over the arena (and
 * over the thread table, if requested). It also cuts and punches the arena's file if it can get it, and closes every
 * descriptor that it did not open, or puts another one there.
 *
 *     scribbler [--wait] arena|table [later]
 *
 * "later": not before the second line of input. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include "check.h"

enum { PAGE = 4096, WHOLE = 1 << 20, SAMPLES = 256 };

static volatile int stop;
static int with_table;
static long scribbled;
static uint64_t seed = 0x9e3779b97f4a7c15UL;

PROBED long scribbler_work(long value)
{
	return value * 5 + 3;
}

static uint64_t random_word(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* The kernel does the writing, so unmapped memory is an error and not a fault. */
static void scribble(int memory, uint64_t start, uint64_t bytes)
{
	uint64_t page[PAGE / 8];
	for (uint64_t done = 0; done < bytes && !stop; done += PAGE) {
		for (int word = 0; word < PAGE / 8; word++)
			page[word] = random_word();
		if (pwrite(memory, page, PAGE, (off_t)(start + done)) > 0)
			__atomic_fetch_add(&scribbled, 1, __ATOMIC_RELAXED);
	}
}

static void damage(int memory, uint64_t start, uint64_t end)
{
	char path[96];
	snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", start, end);
	int file = open(path, O_RDWR | O_CLOEXEC);
	if (file >= 0) {
		CHECK(ftruncate(file, 0) != 0 && ftruncate(file, 1L << 40) != 0);
		fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(random_word() % (end - start)), 64 * PAGE);
		close(file);
	}
	uint64_t bytes = end - start;
	scribble(memory, start, bytes < WHOLE ? bytes : WHOLE);
	for (int sample = 0; sample < SAMPLES && bytes > PAGE; sample++)
		scribble(memory, start + random_word() % (bytes / PAGE) * PAGE, PAGE);
	if (with_table)
		scribble(memory, end + PAGE, 16 * PAGE);
}

static void *scribbles(void *unused)
{
	int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	CHECK(memory >= 0);
	while (!stop) {
		FILE *map = fopen("/proc/self/maps", "re");
		CHECK(map);
		char line[512];
		uint64_t start, end;
		while (fgets(line, sizeof line, map))
			if (strstr(line, "/memfd:nanoprobe") && sscanf(line, "%lx-%lx", &start, &end) == 2)
				damage(memory, start, end);
		int own = fileno(map);
		for (int descriptor = 3; descriptor < 32; descriptor++)
			if (descriptor != memory && descriptor != own) {
				if (random_word() % 2)
					close(descriptor);
				else
					dup2(memory, descriptor);
			}
		fclose(map);
		usleep(300);
	}
	return unused;
}

static void *work(void *unused)
{
	for (long value = 0; !stop; value++) {
		CHECK(scribbler_work(value) == value * 5 + 3);
		if (value % 256 == 0)
			usleep(50);
	}
	return unused;
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	with_table = argc > 1 && strcmp(argv[1], "table") == 0;
	wait_for_go();
	pthread_t threads[2];
	CHECK(pthread_create(&threads[1], NULL, work, NULL) == 0);
	printf("working\n");
	if (argc > 2)
		wait_for_line();
	CHECK(pthread_create(&threads[0], NULL, scribbles, NULL) == 0);
	printf("scribbling\n");
	wait_for_line();
	stop = 1;
	for (int thread = 0; thread < 2; thread++)
		pthread_join(threads[thread], NULL);
	printf("scribbled %ld\nOK\n", scribbled);
	return 0;
}
