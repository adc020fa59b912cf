/* odd KIND: processes that are hard to stop or to borrow. Each says "ready" and, in the end, "fine". */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/rseq.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern const ptrdiff_t __rseq_offset __attribute__((weak));

static void say(const char *text)
{
	if (write(1, text, strlen(text)) < 0)
		_exit(1);
}

static void *rest(void *argument)
{
	char byte;
	while (read(0, &byte, 1) > 0)
		;
	say("fine\n");
	exit(argument != 0);
}

/* The main thread ends, and another thread lives on. */
static int headless(void)
{
	pthread_t thread;
	pthread_create(&thread, 0, rest, 0);
	say("ready\n");
	pthread_exit(0);
}

/* Waits in vfork until the child has read the end of our input. */
static int in_vfork(void)
{
	say("ready\n");
	pid_t child = vfork();
	if (child == 0) {
		char byte;
		while (read(0, &byte, 1) > 0)
			;
		_exit(0);
	}
	waitpid(child, 0, 0);
	say("fine\n");
	return 0;
}

/* Executes its own program again and again, N times in all. */
static int phoenix(char **arguments)
{
	int left = atoi(arguments[2]);
	pthread_t thread;
	if (left == 0) {
		say("fine\n");
		return 0;
	}
	pthread_create(&thread, 0, rest, 0);
	char number[20];
	snprintf(number, sizeof number, "%d", left - 1);
	execl("/proc/self/exe", "odd", "phoenix", number, (char *)0);
	return 1;
}

/* Waits for SIGUSR1 with sigsuspend, and must find its mask as it was. */
static volatile sig_atomic_t came;
static void on_signal(int signal)
{
	came += signal == SIGUSR1;
}
static int suspended(void)
{
	sigset_t usr1, none, now;
	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, 0);
	signal(SIGUSR1, on_signal);
	say("ready\n");
	while (!came)
		if (sigsuspend(&none) != -1 || errno != EINTR || (sigprocmask(SIG_BLOCK, 0, &now), !sigismember(&now, SIGUSR1)))
			return 1;
	say("fine\n");
	return 0;
}

/* A filter: mmap fails with EACCES, memfd_create raises SIGSYS. */
static int sandboxed(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof code[0], code };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 1;
	say("ready\n");
	rest(0);
	return 1;
}

static int filtered(const struct sock_filter *code, size_t length)
{
	struct sock_fprog program = { (unsigned short)length, (struct sock_filter *)code };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define IS(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1)
#define KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Killed for some calls, and for mappings of 2^32 bytes and more. */
static int permissive(void)
{
	static const struct sock_filter code[] = {
		NUMBER, IS(SYS_getpid), KILL, IS(SYS_gettid), KILL, IS(SYS_process_vm_readv), KILL,
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]) + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), KILL,
		ALLOW,
	};
	if (filtered(code, sizeof code / sizeof code[0]))
		return 1;
	say("ready\n");
	rest(0);
	return 1;
}

/* Sleeps for 20 ms at least ten times, until its input has ended. A filter kills the process if it calls
   restart_syscall. */
static int sleeper(void)
{
	static const struct sock_filter code[] = { NUMBER, IS(SYS_restart_syscall), KILL, ALLOW };
	if (filtered(code, sizeof code / sizeof code[0]))
		return 1;
	struct pollfd input = { 0, 0, 0 };
	say("ready\n");
	for (int i = 0; i < 10 || poll(&input, 1, 0) == 0; i++)
		usleep(20000);
	say("fine\n");
	return 0;
}

/* Loops inside a restartable sequence. Only an abort of the sequence leads out of it, to a check whether the input
   has ended. */
static int sequence(void)
{
	if (!&__rseq_offset) {
		say("none\n");
		return 0;
	}
	struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
	static struct rseq_cs descriptor;
	uint64_t start, end, abort;
	struct pollfd input = { 0, 0, 0 };
	say("ready\n");
	asm volatile("lea 1f(%%rip), %0\n\tlea 2f(%%rip), %1\n\tlea 3f(%%rip), %2" : "=r"(start), "=r"(end), "=r"(abort));
	descriptor = (struct rseq_cs){ .start_ip = start, .post_commit_offset = end - start, .abort_ip = abort };
again:
	asm goto volatile("movq %[cs], %[area]\n\t"
			  "1:\n\t"
			  "cmpl $0, %[flag]\n\t"
			  "je 1b\n\t"
			  "2:\n\tjmp %l[through]\n\t"
			  ".byte 0x0f, 0xb9, 0x3d\n\t.long 0x53053053\n\t"
			  "3:\n\tjmp %l[aborted]"
			  : : [cs] "r"(&descriptor), [area] "m"(area->rseq_cs), [flag] "m"(came) : "memory" : through, aborted);
through:
	say("through\n");
	return 1;
aborted:
	if (poll(&input, 1, 0) == 0)
		goto again;
	say("fine\n");
	return 0;
}

int main(int count, char **arguments)
{
	const char *kind = count > 1 ? arguments[1] : "";
	if (!strcmp(kind, "headless"))
		return headless();
	if (!strcmp(kind, "vfork"))
		return in_vfork();
	if (!strcmp(kind, "phoenix"))
		return phoenix(arguments);
	if (!strcmp(kind, "suspended"))
		return suspended();
	if (!strcmp(kind, "sandboxed"))
		return sandboxed();
	if (!strcmp(kind, "permissive"))
		return permissive();
	if (!strcmp(kind, "sleeper"))
		return sleeper();
	if (!strcmp(kind, "sequence"))
		return sequence();
	return 2;
}
