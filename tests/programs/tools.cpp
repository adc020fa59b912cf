/* For the ready-made tools: each mode does known things a known number of times.
 *
 *     tools MODE */
#include <poll.h>
#include <pthread.h>
#include "check.h"

/* calls */
extern "C" PROBED long inner(long depth)
{
	long below = depth > 0 ? inner(depth - 1) + 1 : 0;
	DO_AFTER_CALL(below);
	return below;
}
extern "C" PROBED long outer(long depth)
{
	long sum = inner(depth);
	return sum + inner(0) + 1;
}
extern "C" PROBED long top(long rounds)
{
	long sum = 0;
	for (long i = 0; i < rounds; i++)
		sum += outer(2);
	return sum;
}
extern "C" PROBED long slow(long ms)
{
	usleep((useconds_t)ms * 1000);
	return ms;
}

/* memory */
static void *kept[100];
extern "C" PROBED void leak(long i, size_t bytes)
{
	kept[i] = malloc(bytes);
	if (kept[i] == nullptr)
		abort();
}
extern "C" PROBED void frees()
{
	void *block = malloc(50);
	block = realloc(block, 70);
	__asm__ volatile("" : "+r"(block));
	free(block);
}
extern "C" PROBED void leak_aligned()
{
	void *block = nullptr;
	if (posix_memalign(&block, 64, 256) != 0)
		abort();
	kept[99] = block;
}

/* locks, threads */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
extern "C" PROBED void waits()
{
	pthread_barrier_wait(&barrier);
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	pthread_barrier_wait(&barrier);
}
static void *waiter(void *rounds)
{
	for (long i = 0; i < (long)rounds; i++)
		waits();
	return nullptr;
}
extern "C" PROBED void *starts_here(void *argument)
{
	return argument;
}

/* objects */
struct Shape { long words[5]; };
extern "C" PROBED Shape *make_shape()
{
	return new Shape();
}
extern "C" PROBED char *make_array(long bytes)
{
	return new char[(size_t)bytes];
}

/* A bit of everything, until a line or the end of the input comes. */
static void work()
{
	struct pollfd input = { 0, POLLIN, 0 };
	pthread_barrier_init(&barrier, nullptr, 2);
	printf("working\n");
	while (poll(&input, 1, 0) == 0) {
		pthread_t thread;
		pthread_create(&thread, nullptr, waiter, (void *)1);
		pthread_mutex_lock(&lock);
		pthread_barrier_wait(&barrier);
		top(3);
		slow(2);
		frees();
		delete make_shape();
		pthread_mutex_unlock(&lock);
		pthread_barrier_wait(&barrier);
		pthread_join(thread, nullptr);
	}
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	const char *mode = argc > 1 ? argv[1] : "";
	if (strcmp(mode, "work") == 0)
		work();
	if (strcmp(mode, "calls") == 0)
		printf("top %ld\n", top(3));
	if (strcmp(mode, "slow") == 0)
		for (long i = 0; i < 4; i++)
			slow(i % 2 ? 60 + 10 * i : 1 + i);
	if (strcmp(mode, "memory") == 0) {
		for (long i = 0; i < 12; i++)
			leak(i, 100);
		for (long i = 12; i < 19; i++)
			leak(i, 1000);
		for (long i = 0; i < 500; i++)
			frees();
		leak_aligned();
	}
	if (strcmp(mode, "locks") == 0) {
		pthread_t thread;
		pthread_barrier_init(&barrier, nullptr, 2);
		pthread_create(&thread, nullptr, waiter, (void *)9);
		for (int i = 0; i < 9; i++) {
			pthread_mutex_lock(&lock);
			pthread_barrier_wait(&barrier);
			usleep(60000);
			pthread_mutex_unlock(&lock);
			pthread_barrier_wait(&barrier);
		}
		pthread_join(thread, nullptr);
	}
	if (strcmp(mode, "threads") == 0)
		for (long i = 0; i < 7; i++) {
			pthread_t thread;
			pthread_create(&thread, nullptr, i % 2 ? waiter : starts_here, (void *)0);
			pthread_join(thread, nullptr);
		}
	if (strcmp(mode, "objects") == 0) {
		for (int i = 0; i < 10; i++)
			delete make_shape();
		for (int i = 0; i < 3; i++)
			delete[] make_array(4096);
	}
	return finish(MIX_START);
}
