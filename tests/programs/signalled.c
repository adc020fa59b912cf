/* Signals of all kinds with what comes with them, in the words of strace, and ends of all kinds.
 * signalled            handles each signal once, and prints what its handler was given
 * signalled kill       ends by SIGKILL, with one thread more, which waits
 * signalled child      a child waits until it is killed; its number is printed; the parent ends with 7 after that */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include "asleep.h"

static siginfo_t given;
static volatile int handled;
static sigjmp_buf way_out;

PROBED void informed(int signal, siginfo_t *information, void *context)
{
	CHECK(context && information->si_signo == signal);
	given = *information;
	handled++;
	if (information->si_code > 0 && (signal == SIGSEGV || signal == SIGFPE || signal == SIGILL))
		siglongjmp(way_out, 1);
}

/* Without SA_SIGINFO. */
PROBED void plain(int signal)
{
	(void)signal;
	handled++;
}

static void install(int signal)
{
	struct sigaction action = { .sa_sigaction = informed, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(signal, &action, NULL) == 0);
}

static void begins(const char *name, const char *code)
{
	static int expected;
	CHECK(handled == ++expected);
	printf("--- %s {si_signo=%s, si_code=%s", name, name, code);
}

static void sent(const char *name, const char *code)
{
	begins(name, code);
	printf(", si_pid=%d, si_uid=%d", given.si_pid, (int)given.si_uid);
	if (given.si_code == SI_QUEUE)
		printf(", si_int=%d, si_ptr=%p", given.si_int, given.si_ptr);
	printf("} ---\n");
}

static void raised(const char *name, const char *code)
{
	begins(name, code);
	printf(", si_addr=%p} ---\n", given.si_addr);
}

static void children(void)
{
	/* Blocked until the parent waits for it, so the call before it is not interrupted at an unknown place. */
	sigset_t blocked, old;
	CHECK(sigemptyset(&blocked) == 0 && sigaddset(&blocked, SIGCHLD) == 0);
	for (int way = 0; way < 2; way++) {
		CHECK(sigprocmask(SIG_BLOCK, &blocked, &old) == 0);
		pid_t child = fork();
		if (child == 0) {
			if (way == 0)
				_exit(3);
			for (;;)
				pause();
		}
		if (way == 1)
			CHECK(kill(child, SIGTERM) == 0);
		CHECK(sigsuspend(&old) == -1 && sigprocmask(SIG_SETMASK, &old, NULL) == 0);
		CHECK(waitpid(child, NULL, 0) == child && given.si_pid == child);
		begins("SIGCHLD", way == 0 ? "CLD_EXITED" : "CLD_KILLED");
		printf(", si_pid=%d, si_uid=%d, si_status=%s\n", given.si_pid, (int)given.si_uid, way == 0 ? "3" : "SIGTERM");
	}
}

/* A call that a signal ends. */
static void interrupted(void)
{
	sigset_t blocked, old;
	struct itimerval soon = { .it_value = { .tv_usec = 1000 } };
	CHECK(sigemptyset(&blocked) == 0 && sigaddset(&blocked, SIGALRM) == 0);
	CHECK(sigprocmask(SIG_BLOCK, &blocked, &old) == 0);
	CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
	CHECK(sigsuspend(&old) == -1 && sigprocmask(SIG_SETMASK, &old, NULL) == 0);
	begins("SIGALRM", "SI_KERNEL");
	printf("} ---\n");
}

static void faults(void)
{
	char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	if (!sigsetjmp(way_out, 1))
		*(volatile char *)(page + 8) = 1;
	raised("SIGSEGV", "SEGV_ACCERR");
	CHECK(munmap(page, 4096) == 0);
	if (!sigsetjmp(way_out, 1))
		*(volatile char *)(page + 8) = 1;
	raised("SIGSEGV", "SEGV_MAPERR");
	if (!sigsetjmp(way_out, 1))
		__asm__ volatile("xor %%ecx, %%ecx; xor %%edx, %%edx; div %%ecx" : : "a"(1) : "ecx", "edx");
	raised("SIGFPE", "FPE_INTDIV");
	if (!sigsetjmp(way_out, 1))
		__asm__ volatile("ud2");
	raised("SIGILL", "ILL_ILLOPN");
}

static volatile pid_t waiting;

static void *waits(void *nothing)
{
	waiting = gettid();
	for (;;)
		pause();
	return nothing;
}

static int ends(const char *way)
{
	pthread_t thread;
	if (!strcmp(way, "child")) {
		pid_t child = fork();
		if (child == 0) {
			getppid();
			for (;;)
				pause();
		}
		printf("child %d\n", child);
		fflush(stdout);
		CHECK(waitpid(child, NULL, 0) == child);
		return 7;
	}
	CHECK(!strcmp(way, "kill") && pthread_create(&thread, NULL, waits, NULL) == 0);
	while (!waiting)
		;
	wait_until_asleep(waiting);
	kill(getpid(), SIGKILL);
	return 1;
}

int main(int count, char **words)
{
	if (count > 1)
		return ends(words[1]);
	static const int all[] = { SIGUSR1, SIGUSR2, SIGHUP, SIGURG, SIGCHLD, SIGALRM, SIGSEGV, SIGFPE, SIGILL };
	for (unsigned index = 0; index < sizeof(all) / sizeof(*all); index++)
		install(all[index]);
	kill(getpid(), SIGUSR1);
	sent("SIGUSR1", "SI_USER");
	raise(SIGUSR2);
	sent("SIGUSR2", "SI_TKILL");
	sigqueue(getpid(), SIGHUP, (union sigval){ .sival_ptr = (void *)0x123456789a });
	sent("SIGHUP", "SI_QUEUE");
	/* Sent, but like those that instructions raise. */
	kill(getpid(), SIGSEGV);
	sent("SIGSEGV", "SI_USER");
	signal(SIGURG, plain);
	raise(SIGURG);
	handled--;
	printf("--- SIGURG {si_signo=SIGURG, ...} ---\n");
	children();
	interrupted();
	faults();
	printf("OK\n");
	return 0;
}
