/* Shared by the measured programs: clocks, the choice of a processor, their output. All of it is static: each program
 * is one file, and one of them is compiled where the comparison runs. */
#ifndef NANOPROBE_BENCH_BATCHES_H
#define NANOPROBE_BENCH_BATCHES_H

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* About how long a batch takes. */
enum { BATCH_NS = 4000000 };

static inline uint64_t nanoseconds(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static inline uint64_t now(void)
{
	return nanoseconds(CLOCK_MONOTONIC);
}

/* This thread's time: other work on its processor does not count. */
static inline uint64_t processor_time(void)
{
	return nanoseconds(CLOCK_THREAD_CPUTIME_ID);
}

/* Threads are pinned to processors, from the last one down. */
static inline void pin(long thread)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((size_t)(processors - 1 - thread % processors), &set);
	sched_setaffinity(0, sizeof set, &set);
}

/* The line that the comparison reads (src/looping.rs). 0: the reader is gone. */
static inline int say_batch(long thread, double ns)
{
	char line[64];
	int length = snprintf(line, sizeof line, "batch %ld %.4f\n", thread, ns);
	return write(1, line, (size_t)length) == length;
}

#endif
