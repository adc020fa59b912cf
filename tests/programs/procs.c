/* Makes processes, threads, programs and signals, each a known number of times.
 * procs [rounds]
 * Prints `name number` for each. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "check.h"

extern char **environ;

static long processes, forks, programs, failures, denied, threads, exits;
static long signals[65];
static pthread_barrier_t both;

static void ignore(int signal)
{
	(void)signal;
}

static void sent(int signal)
{
	signals[signal]++;
}

/* Ends when it is killed, or by itself with an error. */
static pid_t forked(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(3);
	processes++;
	forks++;
	return child;
}

static void reap(pid_t child, int status)
{
	int found;
	CHECK(waitpid(child, &found, 0) == child);
	CHECK(WIFEXITED(found) && WEXITSTATUS(found) == status);
}

static void execute(const char *path, int succeeds)
{
	pid_t child = vfork();
	CHECK(child >= 0);
	if (child == 0) {
		char *arguments[] = { (char *)path, NULL };
		execve(path, arguments, environ);
		_exit(127);
	}
	processes++;
	programs++;
	failures += !succeeds;
	exits += !succeeds; /* in the memory of this process */
	reap(child, succeeds ? 0 : 127);
}

static void *thread(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&both);
	pthread_barrier_wait(&both);
	return NULL;
}

static void with_thread(void)
{
	pthread_t other;
	CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
	CHECK(pthread_create(&other, NULL, thread, NULL) == 0);
	threads++;
	pthread_barrier_wait(&both);
	CHECK(pthread_kill(other, SIGWINCH) == 0);
	sent(SIGWINCH);
	pthread_barrier_wait(&both);
	pthread_join(other, NULL);
}

static void to_itself(void)
{
	CHECK(raise(SIGUSR1) == 0);
	sent(SIGUSR1);
	CHECK(kill(getpid(), SIGUSR2) == 0);
	sent(SIGUSR2);
	CHECK(kill(getpid(), 0) == 0);
	errno = 0;
	CHECK(kill(getpid(), 99) == -1 && errno == EINVAL);
	union sigval value = { .sival_int = 7 };
	CHECK(sigqueue(getpid(), SIGURG, value) == 0);
	sent(SIGURG);
	CHECK(syscall(SYS_tkill, (pid_t)syscall(SYS_gettid), SIGIO) == 0);
	sent(SIGIO);
	/* Sent, and taken by waiting. */
	sigset_t set;
	struct timespec no_time = { 0, 0 };
	sigemptyset(&set);
	sigaddset(&set, SIGPWR);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(kill(getpid(), SIGPWR) == 0);
	sent(SIGPWR);
	CHECK(sigtimedwait(&set, NULL, &no_time) == SIGPWR);
	CHECK(sigtimedwait(&set, NULL, &no_time) == -1);
}

static void to_another(void)
{
	int ends[2];
	char byte;
	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(ends[1]);
		while (read(ends[0], &byte, 1) != 0)
			;
		_exit(5);
	}
	processes++;
	forks++;
	close(ends[0]);
	CHECK(kill(child, SIGCONT) == 0);
	sent(SIGCONT);
	union sigval value = { .sival_int = 7 };
	CHECK(sigqueue(child, SIGCHLD, value) == 0);
	sent(SIGCHLD);
	CHECK(kill(child, 0) == 0);
	close(ends[1]);
	reap(child, 5);
	errno = 0;
	CHECK(kill(child, SIGHUP) == -1 && errno == ESRCH);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long rounds = argc > 1 ? atol(argv[1]) : 1;
	static const int handled[] = { SIGUSR1, SIGUSR2, SIGURG, SIGIO, SIGWINCH };
	for (unsigned index = 0; index < sizeof handled / sizeof *handled; index++)
		CHECK(signal(handled[index], ignore) != SIG_ERR);
	wait_for_go();
	for (long round = 0; round < rounds; round++) {
		reap(forked(), 3);
		execute("/bin/true", 1);
		execute("/no/such/program", 0);
		char *arguments[] = { "true", NULL };
		pid_t child;
		CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0);
		processes++;
		programs++;
		reap(child, 0);
		/* No program. */
		errno = 0;
		CHECK(execve("/proc/self/status", arguments, environ) == -1 && errno == EACCES);
		programs++;
		failures++;
		denied++;
		with_thread();
		to_itself();
		to_another();
	}
	printf("processes %ld\nprograms %ld\nfailures %ld\ndenied %ld\n", processes, programs, failures, denied);
	printf("forks %ld\n", forks);
	printf("threads %ld\nexits %ld\ncleared %ld\n", threads, exits + 1, rounds);
	for (int signal = 1; signal < 65; signal++)
		if (signals[signal])
			printf("signal%d %ld\n", signal, signals[signal]);
	printf("OK\n");
	return 0;
}
