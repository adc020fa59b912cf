/* Works by itself at first, and then by threads that end.
 *
 *     worker MICROSECONDS MILLISECONDS
 *
 * Each byte of its input starts the next step. First it works without a pause. Then it prints the ns of processor time
 * that it has had, after another half second; then again. Then it works for MILLISECONDS in threads of MICROSECONDS
 * each, says "done", and waits for the end of its input. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long spent(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void *works(void *microseconds)
{
	while (spent(CLOCK_THREAD_CPUTIME_ID) < (long)microseconds * 1000)
		;
	return NULL;
}

/* Works until a byte comes on its input, and then for half a second more. */
static void work(void)
{
	char byte;
	long until;
	fcntl(0, F_SETFL, O_NONBLOCK);
	while (read(0, &byte, 1) != 1)
		works((void *)(spent(CLOCK_THREAD_CPUTIME_ID) / 1000 + 1000));
	until = spent(CLOCK_THREAD_CPUTIME_ID) / 1000 + 500000;
	works((void *)until);
	fcntl(0, F_SETFL, 0);
}

int main(int argc, char **argv)
{
	char byte;
	if (argc < 3 || read(0, &byte, 1) != 1)
		return 1;
	for (int part = 0; part < 2; part++) {
		work();
		printf("%ld\n", spent(CLOCK_THREAD_CPUTIME_ID));
		fflush(stdout);
	}
	if (read(0, &byte, 1) != 1)
		return 3;
	for (long rest = atol(argv[2]) * 1000; rest > 0; rest -= atol(argv[1])) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, works, (void *)atol(argv[1])))
			return 2;
		pthread_join(thread, NULL);
	}
	puts("done");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	printf("fine");
	return 0;
}
