/* Threads that work, and a handler that blocks all signals for nearly every signal there is. Ends when a line
 * comes on its input, and then prints how often `probed` was called. Usage: handlers THREADS */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int ends;
static long calls[64];

__attribute__((noinline)) void probed(long *count)
{
	(*count)++;
}

static void on_signal(int signal)
{
}

static void *work(void *count)
{
	while (!ends) {
		probed(count);
		usleep(200);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = atoi(argv[1]);
	pthread_t ids[64];
	struct sigaction action, now, before[64];
	long total = 0;
	int same = 0, caught = 0;
	char byte;

	memset(&action, 0, sizeof(action));
	action.sa_handler = on_signal;
	sigfillset(&action.sa_mask);
	for (int signal = 1; signal < 64; signal++)
		caught += signal != SIGTERM && !sigaction(signal, &action, NULL);
	for (int signal = 1; signal < 64; signal++)
		sigaction(signal, NULL, &before[signal]);
	for (int thread = 0; thread < threads; thread++)
		pthread_create(&ids[thread], NULL, work, &calls[thread]);
	puts("ready");
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		return 1;
	ends = 1;
	for (int thread = 0; thread < threads; thread++) {
		pthread_join(ids[thread], NULL);
		total += calls[thread];
	}
	for (int signal = 1; signal < 64; signal++)
		same += !sigaction(signal, NULL, &now) && now.sa_handler == on_signal &&
			!memcmp(&now.sa_mask, &before[signal].sa_mask, 8);
	printf("total %ld\ncaught %d\nsame %d\n", total, caught, same);
	return 0;
}
