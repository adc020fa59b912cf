/* Threads that never sleep.
 *
 *     spinners N
 *
 * Says "ready" when all run. At the end of its input, it waits until each has run on, and says "N go on". */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS_MAX = 64 };
static volatile unsigned long counts[THREADS_MAX];

static void *spin(void *argument)
{
	for (volatile unsigned long *count = argument;; (*count)++)
		;
	return NULL;
}

/* Waits until each thread has counted further than at the time of the call. */
static void wait_for_all(int threads)
{
	for (int i = 0; i < threads; i++)
		for (unsigned long before = counts[i]; counts[i] == before;)
			usleep(1000);
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	char byte;
	for (int i = 0; i < threads && i < THREADS_MAX; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, spin, (void *)&counts[i]))
			return 2;
	}
	wait_for_all(threads);
	printf("ready\n");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	wait_for_all(threads);
	printf("%d go on", threads);
	return 0;
}
