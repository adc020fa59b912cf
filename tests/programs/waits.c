/* Calls that wait under a signal mask of their own, whose handlers call a probed function.
 * waits MODE [amount]
 * each      each call, with the signal pending already; bad masks
 * asleep    threads that are asleep in the calls, and in handlers whose return blocks all signals, while a tracer comes
 *           and goes; a line on stdin after the first lets it go on to the end */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include "check.h"

enum { SIGSUSPEND, PPOLL, PSELECT, EPOLL_PWAIT, SYSCALL, WAITS };

static long handled_calls;

PROBED uint64_t handled(uint64_t value)
{
	return value + 17;
}

static void count(void)
{
	CHECK(handled(25) == 42);
	__atomic_fetch_add(&handled_calls, 1, __ATOMIC_SEQ_CST);
}

static void on_signal(int signal)
{
	(void)signal;
	count();
}

/* All signals except this one. */
static sigset_t all_but(int signal)
{
	sigset_t set;
	sigfillset(&set);
	if (signal)
		sigdelset(&set, signal);
	return set;
}

static int epoll;

static long wait_by(int way, const sigset_t *mask)
{
	struct epoll_event event;
	switch (way) {
	case SIGSUSPEND:
		return sigsuspend(mask);
	case PPOLL:
		return ppoll(NULL, 0, NULL, mask);
	case PSELECT:
		return pselect(0, NULL, NULL, NULL, NULL, mask);
	case EPOLL_PWAIT:
		return epoll_pwait(epoll, &event, 1, -1, mask);
	default:
		return syscall(SYS_rt_sigsuspend, mask, 8L);
	}
}

static void each(long amount)
{
	sigset_t mask = all_but(SIGUSR1), copy = mask, blocked = all_but(0);
	CHECK(sigprocmask(SIG_SETMASK, &blocked, NULL) == 0);
	for (long i = 0; i < amount; i++) {
		for (int way = 0; way < WAITS; way++) {
			long before = handled_calls;
			CHECK(raise(SIGUSR1) == 0 && handled_calls == before);
			CHECK(wait_by(way, &mask) == -1 && errno == EINTR);
			CHECK(handled_calls == before + 1);
			CHECK(memcmp(&mask, &copy, sizeof(mask)) == 0);
		}
	}
	for (int way = 0; way < WAITS; way++)
		CHECK(wait_by(way, (const sigset_t *)8) == -1 && errno == EFAULT);
	/* A call without a mask, and one with a mask of an invalid size. */
	struct timespec now = {0, 0};
	CHECK(ppoll(NULL, 0, &now, NULL) == 0);
	CHECK(syscall(SYS_rt_sigsuspend, &mask, 4L) == -1 && errno == EINVAL);
	CHECK(pselect(0, NULL, NULL, NULL, &now, NULL) == 0 && pselect(0, NULL, NULL, NULL, &now, &mask) == 0);
	/* The child of a fork. */
	pid_t child = fork();
	if (child == 0) {
		long before = handled_calls;
		for (int way = 0; way < WAITS; way++) {
			raise(SIGUSR1);
			CHECK(wait_by(way, &mask) == -1 && errno == EINTR);
		}
		_exit(handled_calls == before + WAITS ? 7 : 8);
	}
	int status;
	CHECK(syscall(SYS_wait4, child, &status, 0, NULL) == child && status == 7 << 8);
	CHECK(sigprocmask(SIG_BLOCK, NULL, &copy) == 0 && sigismember(&copy, SIGTRAP) && sigismember(&copy, SIGUSR1));
}

/* ---- asleep */

static volatile int is_over, may_return;
static long woken[WAITS];

static void *asleep(void *argument)
{
	int way = (int)(long)argument;
	sigset_t mask = all_but(SIGUSR1);
	while (!is_over) {
		CHECK(wait_by(way, &mask) == -1);
		CHECK(errno == EINTR);
		__atomic_fetch_add(&woken[way], 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static void on_held(int signal)
{
	(void)signal;
	while (!may_return)
		usleep(1000);
	count();
}

static void *held(void *alternate)
{
	char *memory = alternate;
	stack_t stack = {.ss_sp = memory, .ss_size = 256 << 10};
	CHECK(!memory || sigaltstack(&stack, NULL) == 0);
	/* After the handler all signals are blocked. */
	sigset_t mask = all_but(memory ? SIGUSR2 : SIGHUP), now;
	CHECK(pthread_sigmask(SIG_SETMASK, &mask, NULL) == 0);
	CHECK(raise(memory ? SIGUSR2 : SIGHUP) == 0);
	for (int i = 0; i < 100; i++)
		count();
	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
	CHECK(sigismember(&now, SIGTRAP) && sigismember(&now, SIGSEGV));
	return NULL;
}

static void wake(pthread_t *threads, long amount)
{
	for (int way = 0; way < WAITS; way++) {
		for (long i = 0; i < amount; i++) {
			long before = __atomic_load_n(&woken[way], __ATOMIC_SEQ_CST);
			CHECK(pthread_kill(threads[way], SIGUSR1) == 0);
			while (__atomic_load_n(&woken[way], __ATOMIC_SEQ_CST) == before)
				usleep(100);
		}
	}
}

static void sleepers(long amount)
{
	struct sigaction action = {.sa_handler = on_held}, on_stack = {.sa_handler = on_held, .sa_flags = SA_ONSTACK};
	CHECK(sigaction(SIGHUP, &action, NULL) == 0 && sigaction(SIGUSR2, &on_stack, NULL) == 0);
	sigset_t blocked = all_but(SIGTRAP);
	CHECK(sigprocmask(SIG_SETMASK, &blocked, NULL) == 0);
	pthread_t threads[WAITS], helds[2];
	for (long way = 0; way < WAITS; way++)
		CHECK(pthread_create(&threads[way], NULL, asleep, (void *)way) == 0);
	CHECK(pthread_create(&helds[0], NULL, held, NULL) == 0);
	CHECK(pthread_create(&helds[1], NULL, held, malloc(256 << 10)) == 0);
	/* A thread that was woken once is in its next wait, or will get the next signal when it begins that wait. */
	wake(threads, 1);
	usleep(50000);
	handled_calls = 0;
	wait_for_go();
	may_return = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(helds[i], NULL) == 0);
	wake(threads, amount);
	printf("traced %ld\n", handled_calls);
	wait_for_line();
	wake(threads, amount);
	is_over = 1;
	wake(threads, 1);
	for (int way = 0; way < WAITS; way++)
		CHECK(pthread_join(threads[way], NULL) == 0);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long amount = number(argc, argv, 2, 20);
	epoll = epoll_create1(0);
	struct sigaction action = {.sa_handler = on_signal};
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	if (argc > 1 && strcmp(argv[1], "asleep") == 0) {
		sleepers(amount);
	} else {
		wait_for_go();
		each(amount);
		printf("calls %ld\n", handled_calls);
	}
	return finish(handled_calls);
}
