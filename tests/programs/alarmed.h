/* Threads that execute the functions under test all the time, until a line of input comes. The handler of an alarm
 * interrupts them everywhere, 2000 times a second. */
#ifndef ALARMED_H
#define ALARMED_H

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include "check.h"

/* The threads work until this variable is set. */
static volatile int stop;

static inline void work_alarmed(long threads, void *(*work)(void *), void (*on_alarm)(int))
{
	pthread_t ids[16];
	CHECK(threads >= 0 && threads <= 16);
	struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	struct itimerval often = {{0, 500}, {0, 500}};
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (long i = 0; i < threads; i++)
		CHECK(pthread_create(&ids[i], NULL, work, NULL) == 0);
	printf("working\n");
	wait_for_line();
	stop = 1;
	for (long i = 0; i < threads; i++)
		CHECK(pthread_join(ids[i], NULL) == 0);
}

#endif
