/* Creates threads that end at once, all the time; receives signals, each of which must arrive once; and does work
 * whose results are known. Says "ready"; at the end of its input "signals=N alarms=yes errors=N". */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static atomic_int queued, alarms, errors, ending;

static void on_queued(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)context;
	/* Each signal carries the number 77. */
	if (information->si_value.sival_int != 77)
		atomic_fetch_add(&errors, 1);
	atomic_fetch_add(&queued, 1);
}

static void on_acknowledged(int signal)
{
	(void)signal;
	if (write(1, "a", 1) != 1)
		atomic_fetch_add(&errors, 1);
}

static void on_alarm(int signal)
{
	(void)signal;
	atomic_fetch_add(&alarms, 1);
}

static unsigned long work(unsigned long seed)
{
	double sum = 0;
	for (int i = 0; i < 20000; i++) {
		seed = seed * 6364136223846793005UL + 1442695040888963407UL;
		sum += (double)(seed >> 40);
	}
	return seed ^ (unsigned long)sum;
}

static unsigned long expected;

static void *brief(void *argument)
{
	if (work(1) != expected)
		atomic_fetch_add(&errors, 1);
	return argument;
}

static void *breeder(void *argument)
{
	while (!atomic_load(&ending)) {
		pthread_t threads[4];
		for (int i = 0; i < 4; i++)
			if (pthread_create(&threads[i], 0, brief, argument))
				atomic_fetch_add(&errors, 1);
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], 0);
	}
	return argument;
}

int main(void)
{
	expected = work(1);
	struct sigaction action = { .sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(SIGRTMIN + 3, &action, 0);
	signal(SIGUSR1, on_acknowledged);
	signal(SIGALRM, on_alarm);
	struct itimerval each = { { 0, 1000 }, { 0, 1000 } };
	setitimer(ITIMER_REAL, &each, 0);
	pthread_t breeders[3];
	for (int i = 0; i < 3; i++)
		pthread_create(&breeders[i], 0, breeder, 0);
	if (write(1, "ready\n", 6) != 6)
		return 1;
	char byte;
	while (read(0, &byte, 1) > 0)
		;
	atomic_store(&ending, 1);
	for (int i = 0; i < 3; i++)
		pthread_join(breeders[i], 0);
	printf("signals=%d alarms=%s errors=%d\n", queued, alarms ? "yes" : "no", errors);
	return 0;
}
