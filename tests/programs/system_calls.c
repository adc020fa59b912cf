/* System calls that nothing but this program makes, each a known number of times.
 * system_calls [threads] [rounds] [children]
 * Some come from threads, some from signal handlers that interrupt others, some by numbers that only the program
 * knows. Prints `name number` for each. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include "asleep.h"

#define UNASSIGNED 400 /* a number that no call has had for years, and none will have: x86-64 skips it */
#define BEYOND 100000

extern char **environ;

static long rounds;
static long signals_seen;
static int pipe_ends[2];
static pthread_barrier_t all_ready;

/* One round of calls that cannot fail, and of calls that must fail. */
static void work(pid_t parent)
{
	struct utsname name;
	struct tms times_now;
	struct rusage usage;
	char byte = 0;
	CHECK(getppid() == parent);
	CHECK(syscall(SYS_getppid) == parent);
	CHECK(getpgid(0) > 0);
	CHECK(sched_yield() == 0);
	CHECK(uname(&name) == 0);
	CHECK(times(&times_now) != (clock_t)-1);
	CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
	errno = 0;
	CHECK(dup2(-1, 1000) == -1 && errno == EBADF);
	errno = 0;
	CHECK(pwrite(-1, &byte, 1, 0) == -1 && errno == EBADF);
	errno = 0;
	CHECK(mkdir("/proc/self/status/no", 0700) == -1 && errno == ENOTDIR);
	errno = 0;
	CHECK(syscall(UNASSIGNED, 1, 2, 3, 4, 5, 6) == -1 && errno == ENOSYS);
	errno = 0;
	CHECK(syscall(BEYOND) == -1 && errno == ENOSYS);
	/* The fourth argument is in another register than a function's. */
	CHECK(syscall(SYS_copy_file_range, -1, 0, -1, 0, 4096, 1) == -1);
}

static void *run(void *parent)
{
	pthread_barrier_wait(&all_ready);
	for (long i = 0; i < rounds; i++)
		work(*(pid_t *)parent);
	return NULL;
}

static void on_signal(int signal)
{
	(void)signal;
	int before = errno;
	signals_seen++;
	CHECK(syscall(SYS_getsid, 0) >= 0);
	errno = before;
}

static void set_handler(int signal, int flags)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_signal;
	action.sa_flags = flags;
	CHECK(sigaction(signal, &action, NULL) == 0);
}

/* A read that a signal ends, and one that the kernel restarts. The sender waits for the reader to sleep. */
static void interrupted_reads(void)
{
	char byte;
	CHECK(pipe(pipe_ends) == 0);
	set_handler(SIGUSR1, 0);
	set_handler(SIGUSR2, SA_RESTART);
	pid_t reader = getpid(), child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		wait_until_asleep(reader);
		kill(reader, SIGUSR1);
		/* The reader answers when its read was ended. */
		char answer;
		(void)!syscall(SYS_recvfrom, -1, &answer, 1, 0, 0, 0);
		for (;;) {
			struct stat status;
			if (fstat(pipe_ends[1], &status) == 0 && fcntl(pipe_ends[1], F_GETOWN) != 0)
				break;
			usleep(1000);
		}
		wait_until_asleep(reader);
		kill(reader, SIGUSR2);
		usleep(20000);
		wait_until_asleep(reader);
		struct { const char *base; size_t bytes; } part = { "x", 1 };
		syscall(SYS_writev, pipe_ends[1], &part, 1);
		_exit(0);
	}
	errno = 0;
	CHECK(read(pipe_ends[0], &byte, 1) == -1 && errno == EINTR);
	CHECK(fcntl(pipe_ends[1], F_SETOWN, reader) == 0);
	CHECK(read(pipe_ends[0], &byte, 1) == 1 && byte == 'x');
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void expect_end(pid_t child, int code)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == code);
}

/* Children of each kind. */
static void children(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(3);
	expect_end(child, 3);
	child = vfork();
	CHECK(child >= 0);
	if (child == 0) {
		execl("/proc/self/exe", "system_calls", "child", (char *)NULL);
		_exit(1);
	}
	expect_end(child, 5);
	char *arguments[] = { "system_calls", "child", NULL };
	CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) == 0);
	expect_end(child, 5);
}

/* Children that make calls of their own. */
static long calls_of_children(void)
{
	for (int i = 0; i < 3; i++) {
		pid_t parent = getpid(), child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			for (long round = 0; round < rounds; round++)
				CHECK(getppid() == parent);
			_exit(4);
		}
		expect_end(child, 4);
	}
	return 3 * rounds;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "child") == 0)
		return 5;
	take_arguments(&argc, argv);
	long threads = number(argc, argv, 1, 4);
	rounds = number(argc, argv, 2, 100);
	CHECK(threads >= 1 && threads <= 64);
	wait_for_go();
	pid_t parent = (pid_t)syscall(SYS_getppid);
	CHECK(pthread_barrier_init(&all_ready, NULL, (unsigned)threads) == 0);
	pthread_t ids[64];
	for (long i = 0; i < threads; i++)
		CHECK(pthread_create(&ids[i], NULL, run, &parent) == 0);
	for (long i = 0; i < threads; i++)
		CHECK(pthread_join(ids[i], NULL) == 0);
	interrupted_reads();
	children();
	CHECK(signals_seen == 2);
	if (argc > 3 && strcmp(argv[3], "children") == 0) {
		/* The vDSO has no answer to these. */
		struct timespec time;
		for (int i = 0; i < 50; i++)
			CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
		printf("in_children %ld\nasked 50\n", calls_of_children());
	}
	long each = threads * rounds;
	printf("getppid %ld\n", 2 * each + 1);
	printf("getpgid %ld\nsched_yield %ld\nuname %ld\ntimes %ld\ngetrusage %ld\n", each, each, each, each, each);
	printf("dup2 %ld\npwrite64 %ld\nmkdir %ld\nsys_%d %ld\nunknown %ld\n", each, each, each, UNASSIGNED, each, each);
	printf("copy_file_range %ld\n", each);
	printf("getsid %ld\npipe 1\n", signals_seen);
	printf("reads 2\nmade %ld\n", threads + 4);
	return finish(mix(MIX_START, (uint64_t)each));
}
