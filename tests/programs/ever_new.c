/* Threads whose calls have ever-new arguments, beside signals whose handlers make calls, too.
 *
 *     ever_new [threads] [batches] [calls of each thread in a batch] [keys] [ending]
 *
 *     keys    0: each call has another key; else this many keys come again and again
 *     ending  `exit`; `kill`: by SIGKILL; `exec`: another program; `fork`: a child calls 1000 times, too
 *
 * After a batch the first thread calls batch_done, and waits for a line after `--wait`. In the second half of all
 * batches the other threads call in every second batch only. */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include "check.h"

#define THREADS_MAX 64
#define SIGNAL_KEY 7

static long threads, batches, calls_each, keys;
static uint64_t calls, sum, made, within;
static volatile int working;
static pthread_barrier_t barrier;

PROBED uint64_t used(uint64_t key, uint64_t value)
{
	return key * 31 + value;
}

PROBED uint64_t batch_done(uint64_t batch)
{
	return batch + 1;
}

static void on_alarm(int signal)
{
	(void)signal;
	if (!working)
		return;
	CHECK(used(SIGNAL_KEY, 1) == SIGNAL_KEY * 31 + 1);
	within++;
}

static void work(long thread, long batch)
{
	uint64_t own_sum = 0;
	for (long call = 0; call < calls_each; call++) {
		uint64_t number = (uint64_t)((thread * batches + batch) * calls_each + call);
		uint64_t key = keys ? 1000 + number % (uint64_t)keys : 1000 + number, value = number % 97 + 1;
		CHECK(used(key, value) == key * 31 + value);
		own_sum += value;
	}
	__atomic_fetch_add(&calls, calls_each, __ATOMIC_RELAXED);
	__atomic_fetch_add(&sum, own_sum, __ATOMIC_RELAXED);
}

static void *run(void *argument)
{
	for (long batch = 0; batch < batches; batch++) {
		pthread_barrier_wait(&barrier);
		if (batch < batches / 2 || batch % 2)
			work((long)argument, batch);
		pthread_barrier_wait(&barrier);
	}
	for (;;)
		pause();
	return NULL;
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	static const struct itimerval every = { { 0, 300 }, { 0, 300 } }, never = { { 0, 0 }, { 0, 0 } };
	threads = number(argc, argv, 1, 4);
	batches = number(argc, argv, 2, 10);
	calls_each = number(argc, argv, 3, 100);
	keys = number(argc, argv, 4, 0);
	const char *ending = argc > 5 ? argv[5] : "exit";
	CHECK(threads >= 1 && threads <= THREADS_MAX);
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(pthread_barrier_init(&barrier, NULL, (unsigned)threads) == 0);
	/* Signals go to the first thread only. */
	sigset_t alarm;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	CHECK(pthread_sigmask(SIG_BLOCK, &alarm, NULL) == 0);
	pthread_t id;
	for (long thread = 1; thread < threads; thread++)
		CHECK(pthread_create(&id, NULL, run, (void *)thread) == 0);
	CHECK(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL) == 0);
	wait_for_go();
	for (long batch = 0; batch < batches; batch++) {
		pthread_barrier_wait(&barrier);
		setitimer(ITIMER_REAL, &every, NULL);
		working = 1;
		work(0, batch);
		working = 0;
		setitimer(ITIMER_REAL, &never, NULL);
		pthread_barrier_wait(&barrier);
		CHECK(batch_done((uint64_t)batch) == (uint64_t)batch + 1);
		if (check_wait)
			wait_for_line();
	}
	made = keys ? (uint64_t)keys : calls;
	calls += within;
	sum += within;
	printf("calls %lu\nsum %lu\nmade %lu\nwithin %lu\n", calls, sum, made, within);
	if (strcmp(ending, "fork") == 0) {
		pid_t child = fork();
		CHECK(child >= 0);
		for (uint64_t call = 0; child == 0 && call < 1000; call++)
			CHECK(used(call, 1) == call * 31 + 1);
		if (child == 0)
			_exit(0);
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	puts("OK");
	fflush(stdout);
	if (strcmp(ending, "kill") == 0)
		raise(SIGKILL);
	if (strcmp(ending, "exec") == 0)
		execl("/bin/true", "true", (char *)NULL);
	_exit(0);
}
