/* Turns Syscall User Dispatch on, for one of its threads, and makes calls in and outside of the permitted range, as
 * emulators of other systems do.
 * dispatched [rounds]
 * Each call that its handler of SIGSYS sees is one of its own, at its own address. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include "check.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
enum { OFF, ON, FOREIGN = 5000 };

static volatile char selector;
static volatile long caught, strangers;
extern const char foreign_call[], behind_foreign_call[], own_call_begins[], own_call_ends[];

/* What a program for another system would execute: a call that is not Linux's. */
long foreign(long number);
__asm__(".text\n"
        ".globl foreign, foreign_call, behind_foreign_call\n"
        ".type foreign, @function\n"
        "foreign:\n"
        "	mov %rdi, %rax\n"
        "	mov $77, %edi\n"
        "foreign_call:\n"
        "	syscall\n"
        "behind_foreign_call:\n"
        "	ret\n"
        ".size foreign, . - foreign\n");

PROBED long before(long round)
{
	return round + 1;
}

PROBED long after(long round)
{
	return round + 2;
}

/* Runs with all calls permitted: it changes the selector first, as it must change it back last. */
static void on_call(int signal, siginfo_t *information, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	char before_it = selector;
	selector = 0;
	(void)signal;
	caught++;
	if (information->si_call_addr != behind_foreign_call || information->si_syscall != FOREIGN ||
	    registers[REG_RDI] != 77)
		strangers++;
	registers[REG_RAX] = 1234;
	selector = before_it;
}

/* The range in which calls are permitted in any case: where handlers return. */
static void permitted(unsigned long *from, unsigned long *bytes)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start = 0, end = 0, first, last, target = (unsigned long)&sigaction;
	CHECK(maps);
	while (fgets(line, sizeof line, maps)) {
		CHECK(sscanf(line, "%lx-%lx", &first, &last) == 2);
		if (target >= first && target < last) {
			start = first;
			end = last;
		}
	}
	fclose(maps);
	CHECK(end > start);
	*from = start;
	*bytes = end - start;
}

static void *untouched(void *rounds)
{
	sigset_t all, old;
	sigfillset(&all);
	for (long i = 0; i < *(long *)rounds; i++) {
		CHECK(pthread_sigmask(SIG_BLOCK, &all, &old) == 0);
		CHECK(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long rounds = number(argc, argv, 1, 100), sum = 0;
	unsigned long from, bytes;
	pthread_t other;
	sigset_t all, old;
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = on_call;
	action.sa_flags = SA_SIGINFO;
	CHECK(sigaction(SIGSYS, &action, NULL) == 0);
	permitted(&from, &bytes);
	wait_for_go();
	for (long i = 0; i < rounds; i++)
		sum += before(i);
	CHECK(pthread_create(&other, NULL, untouched, &rounds) == 0);
	int turned = prctl(PR_SET_SYSCALL_USER_DISPATCH, ON, from, bytes, &selector);
	CHECK(turned == 0 || errno == EINVAL);
	sigfillset(&all);
	sigdelset(&all, SIGSYS);
	for (long i = 0; i < rounds && turned == 0; i++) {
		sum += after(i);
		selector = 1;
		CHECK(foreign(FOREIGN) == 1234);
		/* Calls of the library are permitted, and nothing else makes any. */
		CHECK(pthread_sigmask(SIG_BLOCK, &all, &old) == 0);
		CHECK(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
		CHECK(sigaction(SIGTRAP, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
		selector = 0;
		errno = 0;
		CHECK(foreign(FOREIGN) == -ENOSYS);
	}
	CHECK(prctl(PR_SET_SYSCALL_USER_DISPATCH, OFF, 0, 0, 0) == 0 || turned != 0);
	CHECK(pthread_join(other, NULL) == 0);
	CHECK(strangers == 0 && caught == (turned == 0 ? rounds : 0));
	printf("turned %d\nbefore %ld\ncaught %ld\n", turned == 0, rounds, caught);
	return finish(mix(MIX_START, (uint64_t)sum));
}
