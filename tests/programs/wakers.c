/* Threads that are woken by known wakers: one takes a semaphore that another thread posts, one reads from a pipe into
 * which another process writes, and one sleeps. A waker acts only when its thread sleeps, and wakes it TIMES times. The
 * program says of each thread, in one line, NAME TID, and when each of its waits began and ended: times of
 * CLOCK_MONOTONIC in ns. And who wakes: `poster TID`, `writer PID`. */
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "check.h"

enum { TIMES = 10, NAP_NS = 5000000 };

struct life {
	const char *name;
	void (*step)(void);
	pthread_t thread;
	long tid, begun[TIMES], ended[TIMES];
	int steps;
};

static sem_t sem;
static int pipe_ends[2];

static long now_ns(void)
{
	struct timespec time;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

PROBED void takes(void) { CHECK(sem_wait(&sem) == 0); }
PROBED void posts(void)
{
	CHECK(sem_post(&sem) == 0);
	__asm__ volatile("");
}
PROBED void reads(void)
{
	char byte;
	CHECK(read(pipe_ends[0], &byte, 1) == 1);
}
PROBED void naps(void)
{
	struct timespec time = { 0, NAP_NS };
	CHECK(nanosleep(&time, NULL) == 0);
}

static void *live(void *argument)
{
	struct life *life = argument;
	__atomic_store_n(&life->tid, syscall(SYS_gettid), __ATOMIC_RELEASE);
	for (int i = 0; i < TIMES; i++) {
		life->begun[i] = now_ns();
		life->step();
		life->ended[i] = now_ns();
		__atomic_store_n(&life->steps, i + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Waits until a thread of a process sleeps in its step of this number. */
static void until_asleep(struct life *life, int pid, int step)
{
	char path[64], status[4096];
	while (!__atomic_load_n(&life->tid, __ATOMIC_ACQUIRE))
		usleep(1000);
	snprintf(path, sizeof(path), "/proc/%d/task/%ld/status", pid, life->tid);
	do {
		usleep(1000);
		FILE *file = fopen(path, "r");
		CHECK(file);
		status[fread(status, 1, sizeof(status) - 1, file)] = 0;
		fclose(file);
	} while (__atomic_load_n(&life->steps, __ATOMIC_ACQUIRE) != step || !strstr(status, "\nState:\tS"));
}

static void *poster(void *argument)
{
	struct life *taker = argument;
	for (int i = 0; i < TIMES; i++) {
		until_asleep(taker, getpid(), i);
		posts();
	}
	return (void *)syscall(SYS_gettid);
}

/* The other process knows the reader's steps by the bytes that come back. */
static void writer(const struct life *reader, int steps)
{
	struct life known = { .tid = reader->tid };
	for (int i = 0; i < TIMES; i++) {
		CHECK(read(steps, &known.steps, sizeof(known.steps)) == sizeof(known.steps));
		until_asleep(&known, getppid(), i);
		CHECK(write(pipe_ends[1], "x", 1) == 1);
	}
	_exit(0);
}

int main(int count, char **words)
{
	struct life taker = { .name = "taker", .step = takes }, reader = { .name = "reader", .step = reads },
		sleeper = { .name = "sleeper", .step = naps }, *all[] = { &taker, &reader, &sleeper };
	int steps[2];
	begin(&count, words);
	CHECK(pipe(pipe_ends) == 0 && pipe(steps) == 0 && sem_init(&sem, 0, 0) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&all[i]->thread, NULL, live, all[i]) == 0);
	while (!__atomic_load_n(&reader.tid, __ATOMIC_ACQUIRE))
		usleep(1000);
	pid_t other = fork();
	CHECK(other >= 0);
	if (other == 0)
		writer(&reader, steps[0]);
	pthread_t posting;
	CHECK(pthread_create(&posting, NULL, poster, &taker) == 0);
	for (int i = 0; i < TIMES; i++) {
		while (__atomic_load_n(&reader.steps, __ATOMIC_ACQUIRE) != i)
			usleep(1000);
		CHECK(write(steps[1], &i, sizeof(i)) == sizeof(i));
	}
	void *poster_tid;
	for (int i = 0; i < 3; i++) {
		CHECK(pthread_join(all[i]->thread, NULL) == 0);
		printf("%s %ld", all[i]->name, all[i]->tid);
		for (int j = 0; j < TIMES; j++)
			printf(" %ld %ld", all[i]->begun[j], all[i]->ended[j]);
		printf("\n");
	}
	CHECK(pthread_join(posting, &poster_tid) == 0);
	CHECK(waitpid(other, NULL, 0) == other);
	printf("poster %ld\nwriter %d\n", (long)poster_tid, other);
	return finish(MIX_START);
}
