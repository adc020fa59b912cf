/* Signals that are sent to a program that blocks them: the signals that a tracer needs, SIGTRAP, SIGSEGV, SIGBUS and
 * SIGILL.
 *
 *     blocked MODE [amount]
 *
 *     waiter    all threads block all signals, and one waits for them: of the thread and of the process, with values
 *     pending   sigpending, sigtimedwait, unblocking, ignoring; a new thread blocks the same signals as its creator
 *     masks     blocked except within sigsuspend, ppoll, pselect and epoll_pwait
 *     kept      sent before a tracer comes, and while it is there: each line on stdin after the first makes it check */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include "check.h"

enum { SIGNALS = 4 };
static const int signals[SIGNALS] = {SIGTRAP, SIGSEGV, SIGBUS, SIGILL};

static long calls;

PROBED uint64_t handled(uint64_t value)
{
	return value + 17;
}

static void call(void)
{
	CHECK(handled(25) == 42);
	__atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
}

static sigset_t set_of(int signal)
{
	sigset_t set;
	sigemptyset(&set);
	for (int i = 0; i < SIGNALS; i++)
		if (!signal || signals[i] == signal)
			sigaddset(&set, signals[i]);
	return set;
}

static void block_all(void)
{
	sigset_t all;
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
}

/* ---- waiter */

static sem_t taken;
static pthread_t waiter;
static volatile int taken_signal, taken_value, is_over;

static void *wait_for_all(void *unused)
{
	(void)unused;
	sigset_t set = set_of(0);
	while (!is_over) {
		siginfo_t information;
		int signal = sigwaitinfo(&set, &information);
		CHECK(signal > 0 || errno == EINTR);
		if (signal < 0)
			continue;
		CHECK(information.si_signo == signal);
		taken_signal = signal;
		taken_value = information.si_code == SI_QUEUE ? information.si_value.sival_int : 0;
		call();
		sem_post(&taken);
	}
	return NULL;
}

static void *work(void *unused)
{
	(void)unused;
	while (!is_over)
		call();
	return NULL;
}

static void wait_until_taken(int signal)
{
	while (sem_wait(&taken) != 0)
		CHECK(errno == EINTR);
	CHECK(taken_signal == signal);
}

static void as_waiter(long amount)
{
	pthread_t worker;
	block_all();
	CHECK(sem_init(&taken, 0, 0) == 0);
	CHECK(pthread_create(&waiter, NULL, wait_for_all, NULL) == 0);
	CHECK(pthread_create(&worker, NULL, work, NULL) == 0);
	for (long i = 0; i < amount; i++) {
		int signal = signals[i % SIGNALS];
		CHECK(pthread_kill(waiter, signal) == 0);
		wait_until_taken(signal);
		CHECK(kill(getpid(), signal) == 0);
		wait_until_taken(signal);
		CHECK(sigqueue(getpid(), signal, (union sigval){.sival_int = (int)i + 1}) == 0);
		wait_until_taken(signal);
		CHECK(taken_value == i + 1);
		call();
	}
	is_over = 1;
	CHECK(pthread_kill(waiter, SIGTRAP) == 0);
	CHECK(pthread_join(waiter, NULL) == 0 && pthread_join(worker, NULL) == 0);
}

/* ---- pending */

static volatile int delivered;

static void on_signal(int signal)
{
	delivered = signal;
	call();
}

static void handle_all(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	for (int i = 0; i < SIGNALS; i++)
		CHECK(sigaction(signals[i], &action, NULL) == 0);
}

static int is_pending(int signal)
{
	sigset_t pending;
	CHECK(sigpending(&pending) == 0);
	return sigismember(&pending, signal);
}

static void *blocks_like_its_maker(void *unused)
{
	(void)unused;
	for (int i = 0; i < SIGNALS; i++) {
		sigset_t one = set_of(signals[i]);
		delivered = 0;
		CHECK(raise(signals[i]) == 0 && !delivered && is_pending(signals[i]));
		CHECK(sigwaitinfo(&one, NULL) == signals[i]);
	}
	return NULL;
}

static void pending(long amount)
{
	struct timespec now = {0, 0};
	struct sigaction ignoring = {.sa_handler = SIG_IGN};
	block_all();
	handle_all();
	for (long i = 0; i < amount; i++) {
		int signal = signals[i % SIGNALS], process = i / SIGNALS % 2;
		sigset_t one = set_of(signal), old;
		siginfo_t information;
		delivered = 0;
		for (int twice = 0; twice < 2; twice++) {
			CHECK((process ? kill(getpid(), signal) : raise(signal)) == 0);
			CHECK(!delivered && is_pending(signal));
		}
		switch (i / (2 * SIGNALS) % 3) {
		case 0: /* taken once */
			CHECK(sigtimedwait(&one, &information, &now) == signal);
			CHECK(information.si_signo == signal && information.si_pid == getpid());
			CHECK(information.si_code == SI_USER);
			CHECK(sigtimedwait(&one, NULL, &now) == -1 && errno == EAGAIN);
			break;
		case 1: /* taken by a later unblocking */
			CHECK(pthread_sigmask(SIG_UNBLOCK, &one, &old) == 0);
			CHECK(delivered == signal && sigismember(&old, signal));
			CHECK(pthread_sigmask(SIG_BLOCK, &one, NULL) == 0);
			break;
		case 2: /* ignored */
			CHECK(sigaction(signal, &ignoring, NULL) == 0);
			CHECK(!is_pending(signal));
			handle_all();
			CHECK(pthread_sigmask(SIG_UNBLOCK, &one, NULL) == 0 && !delivered);
			CHECK(pthread_sigmask(SIG_BLOCK, &one, NULL) == 0);
			break;
		}
		CHECK(!is_pending(signal));
		call();
	}
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, blocks_like_its_maker, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

/* ---- masks */

static int epoll;

static int wait_by(int way, const sigset_t *mask)
{
	struct epoll_event event;
	switch (way) {
	case 0:
		return sigsuspend(mask);
	case 1:
		return ppoll(NULL, 0, NULL, mask);
	case 2:
		return pselect(0, NULL, NULL, NULL, NULL, mask);
	default:
		return epoll_pwait(epoll, &event, 1, -1, mask);
	}
}

static volatile long rounds_begun;
static pthread_t suspended;

static void *send(void *amount)
{
	for (long i = 1; i <= (long)amount; i++) {
		while (rounds_begun < i)
			sched_yield();
		CHECK(pthread_kill(suspended, signals[i % SIGNALS]) == 0);
	}
	return NULL;
}

static void masks(long amount)
{
	pthread_t sender;
	epoll = epoll_create1(0);
	suspended = pthread_self();
	block_all();
	handle_all();
	CHECK(pthread_create(&sender, NULL, send, (void *)amount) == 0);
	for (long i = 1; i <= amount; i++) {
		int signal = signals[i % SIGNALS];
		sigset_t mask;
		sigfillset(&mask);
		sigdelset(&mask, signal);
		delivered = 0;
		call();
		rounds_begun = i;
		CHECK(wait_by((int)(i / SIGNALS % 4), &mask) == -1 && errno == EINTR);
		CHECK(delivered == signal);
	}
	CHECK(pthread_join(sender, NULL) == 0);
}

/* ---- kept */

static void kept(void)
{
	block_all();
	handle_all();
	CHECK(raise(SIGTRAP) == 0 && kill(getpid(), SIGBUS) == 0);
	wait_for_go();
	CHECK(raise(SIGSEGV) == 0 && kill(getpid(), SIGILL) == 0);
	for (int i = 0; i < SIGNALS; i++)
		CHECK(is_pending(signals[i]));
	for (int i = 0; i < 1000; i++)
		call();
	CHECK(!delivered);
	printf("traced %ld\n", calls);
	wait_for_line();
	for (int i = 0; i < SIGNALS; i++) {
		sigset_t one = set_of(signals[i]);
		siginfo_t information;
		struct timespec now = {0, 0};
		CHECK(is_pending(signals[i]) && !delivered);
		CHECK(sigtimedwait(&one, &information, &now) == signals[i] && information.si_pid == getpid());
	}
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long amount = number(argc, argv, 2, 100);
	const char *mode = argc > 1 ? argv[1] : "";
	if (strcmp(mode, "kept") == 0) {
		kept();
	} else {
		wait_for_go();
		if (strcmp(mode, "waiter") == 0)
			as_waiter(amount);
		else if (strcmp(mode, "pending") == 0)
			pending(amount);
		else
			masks(amount);
		printf("calls %ld\n", calls);
	}
	return finish(0);
}
