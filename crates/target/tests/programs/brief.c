/* brief MICROSECONDS MILLISECONDS: waits for a line, works, says "done", and waits for the end of its input. One thread
 * after the other does the work. Each ends after MICROSECONDS of processor time; all together take MILLISECONDS. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long spent(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void *works(void *microseconds)
{
	while (spent(CLOCK_THREAD_CPUTIME_ID) < (long)microseconds)
		;
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc < 3 || getchar() == EOF)
		return 1;
	while (spent(CLOCK_PROCESS_CPUTIME_ID) < atol(argv[2]) * 1000) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, works, (void *)atol(argv[1])))
			return 2;
		pthread_join(thread, NULL);
	}
	puts("done");
	fflush(stdout);
	while (getchar() != EOF)
		;
	printf("fine");
	return 0;
}
