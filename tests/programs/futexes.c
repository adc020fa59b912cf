/* A thread waits ten times at a word, each time for 20 ms or more, and the main thread wakes it ten times. Calls that
 * neither wait nor wake are made besides. It prints how long the waits took by the clock. */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include "check.h"

enum { TIMES = 10 };

int the_word;
static volatile long waiter_tid;
static long waited_ns;

static long now_ns(void)
{
	struct timespec time;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

PROBED long waits_at(int value)
{
	long result = syscall(SYS_futex, &the_word, FUTEX_WAIT_PRIVATE, value, NULL);
	DO_AFTER_CALL(result);
	return result;
}
PROBED long wakes_at(void)
{
	long result = syscall(SYS_futex, &the_word, FUTEX_WAKE_PRIVATE, 1);
	DO_AFTER_CALL(result);
	return result;
}

static void *waiter(void *unused)
{
	waiter_tid = syscall(SYS_gettid);
	for (int i = 0; i < TIMES; i++) {
		long start = now_ns();
		CHECK(waits_at(i) == 0);
		waited_ns += now_ns() - start;
		/* The word has changed. */
		CHECK(waits_at(i) == -1 && errno == EAGAIN);
	}
	return unused;
}

/* Whether the waiter sleeps in futex(2) at a value. */
static int is_asleep(int value)
{
	char path[64], text[256] = "";
	long number;
	unsigned long word, operation, expected;
	snprintf(path, sizeof(path), "/proc/self/task/%ld/syscall", waiter_tid);
	FILE *file = fopen(path, "r");
	CHECK(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = 0;
	fclose(file);
	return sscanf(text, "%ld %lx %lx %lx", &number, &word, &operation, &expected) == 4 && number == SYS_futex
		&& word == (unsigned long)&the_word && (int)expected == value;
}

int main(int count, char **words)
{
	pthread_t thread;
	begin(&count, words);
	CHECK(pthread_create(&thread, NULL, waiter, NULL) == 0);
	for (int i = 0; i < TIMES; i++) {
		while (!waiter_tid || !is_asleep(i))
			usleep(1000);
		usleep(20000);
		__atomic_store_n(&the_word, i + 1, __ATOMIC_SEQ_CST);
		CHECK(wakes_at() == 1);
		while (i + 1 < TIMES && !is_asleep(i + 1))
			usleep(1000);
		/* Nobody waits for another word. */
		CHECK(syscall(SYS_futex, &waited_ns, FUTEX_WAKE_PRIVATE, 1) == 0);
	}
	CHECK(pthread_join(thread, NULL) == 0);
	printf("waited_ns %ld\n", waited_ns);
	return finish(MIX_START);
}
