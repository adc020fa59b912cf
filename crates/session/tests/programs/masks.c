/* Blocks all signals in every way there is, and calls `probed` meanwhile. Ends by itself. Prints its observations, one
 * a line, which must be the same with and without probes. While it waits at the "go" and "done" pipes, the test can
 * attach to it and examine it. Usage: masks CALLS */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* Several threads call at once: each call counts. */
static long total;
__attribute__((noinline)) void probed(void)
{
	__atomic_fetch_add(&total, 1, __ATOMIC_SEQ_CST);
}

static volatile int traps, users;
static void on_trap(int signal)
{
	traps++;
	probed();
}
static void on_user(int signal)
{
	users++;
	probed();
}

static void fact(const char *name, long value)
{
	printf("%s %ld\n", name, value);
}

static int four_in(const sigset_t *set)
{
	return sigismember(set, SIGTRAP) + sigismember(set, SIGSEGV) + sigismember(set, SIGBUS) + sigismember(set, SIGILL);
}

static void *thread(void *argument)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (long call = 0; call < (long)argument; call++)
		probed();
	pthread_sigmask(SIG_BLOCK, NULL, &all);
	return (void *)(long)(four_in(&old) * 10 + four_in(&all));
}

static void run(long calls)
{
	sigset_t all, old, now;
	struct sigaction action, before;
	sigfillset(&all);
	fact("blocked", sigprocmask(SIG_BLOCK, &all, &old));
	for (long call = 0; call < calls; call++)
		probed();
	sigprocmask(SIG_BLOCK, NULL, &now);
	fact("four", four_in(&now));
	fact("old", four_in(&old));
	/* Threads inherit the mask, and change only their own mask. */
	pthread_t threads[3];
	for (int index = 0; index < 3; index++)
		pthread_create(&threads[index], NULL, thread, (void *)calls);
	for (int index = 0; index < 3; index++) {
		void *result;
		pthread_join(threads[index], &result);
		fact("thread", (long)result);
	}
	/* A child, of fork and of posix_spawn. */
	pid_t child = fork();
	if (child == 0) {
		for (long call = 0; call < calls; call++)
			probed();
		struct sigaction ignore = { .sa_handler = SIG_IGN };
		sigaction(SIGTRAP, &ignore, NULL);
		probed();
		_exit(total > 0 ? 7 : 8);
	}
	int status = 0;
	waitpid(child, &status, 0);
	fact("fork", status);
	char *words[] = { "/bin/true", NULL };
	posix_spawnattr_t attributes;
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
	fact("spawn", posix_spawn(&child, words[0], NULL, &attributes, words, environ));
	waitpid(child, &status, 0);
	fact("spawned", status);
	sigaction(SIGTRAP, NULL, &before);
	fact("trap handler", before.sa_handler == on_trap);
	sigprocmask(SIG_SETMASK, &old, &now);
	fact("four", four_in(&now));
	sigprocmask(SIG_BLOCK, NULL, &now);
	fact("four", four_in(&now));

	/* An action that blocks all signals, whose handler is probed. */
	memset(&action, 0, sizeof(action));
	action.sa_handler = on_user;
	sigfillset(&action.sa_mask);
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	sigaction(SIGUSR1, NULL, &before);
	fact("mask of action", four_in(&before.sa_mask));
	fact("users", users);

	/* The program's own traps. */
	memset(&action, 0, sizeof(action));
	action.sa_handler = on_trap;
	sigaction(SIGTRAP, &action, &before);
	fact("handler before", before.sa_handler == on_trap);
	traps = 0;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, &now);
	fact("four", four_in(&now));
	raise(SIGTRAP);
	__asm__ volatile("int3");
	fact("traps", traps);
	action.sa_handler = SIG_IGN;
	sigaction(SIGTRAP, &action, &before);
	fact("handler", before.sa_handler == on_trap);
	raise(SIGTRAP);
	probed();
	action.sa_handler = on_trap;
	sigaction(SIGTRAP, &action, &before);
	fact("ignored", before.sa_handler == SIG_IGN);

	/* Contexts carry masks too. */
	ucontext_t context;
	volatile int again = 0;
	sigprocmask(SIG_SETMASK, &all, NULL);
	getcontext(&context);
	if (!again++)
		setcontext(&context);
	probed();
	sigprocmask(SIG_SETMASK, &old, &now);
	fact("context", four_in(&now));
}

int main(int count, char **words)
{
	long calls = count > 1 ? atol(words[1]) : 10;
	char byte;
	setvbuf(stdout, NULL, _IONBF, 0);
	struct sigaction action = { .sa_handler = on_trap };
	sigfillset(&action.sa_mask);
	sigaction(SIGTRAP, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	sigset_t some;
	sigemptyset(&some);
	sigaddset(&some, SIGSEGV);
	sigaddset(&some, SIGTRAP);
	sigaddset(&some, SIGUSR2);
	sigprocmask(SIG_SETMASK, &some, NULL);
	printf("ready\n");
	if (read(0, &byte, 1) == 1)
		run(calls);
	sigfillset(&some);
	sigprocmask(SIG_SETMASK, &some, NULL);
	fact("total", total);
	printf("ran\n");
	if (read(0, &byte, 1) == 1) {
		struct sigaction before;
		sigaction(SIGUSR2, NULL, &before);
		fact("mask of old action", four_in(&before.sa_mask));
		sigaction(SIGUSR1, NULL, &before);
		fact("mask of new action", four_in(&before.sa_mask));
		sigprocmask(SIG_BLOCK, NULL, &some);
		fact("four", four_in(&some));
	}
	return 0;
}
