/* Children that put themselves under a seccomp filter after the fork, and then call a function. Each says how often it
 * has called, as `by PID CALLS`. What a filter does not permit ends the child, and the parent notices.
 * filtered strict|kill|errno CALLS         a child that has called before, and one that has not
 * filtered --wait strict|kill|errno CALLS  the same. The children then live, and call once more when the input ends
 *
 * strict  read, write, exit and rt_sigreturn, anything else kills (seccomp(2), SECCOMP_MODE_STRICT)
 * kill    read, write and exit, anything else kills the process
 * errno   read, write and exit, anything else fails with EPERM */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "check.h"

PROBED uint64_t called(uint64_t value)
{
	return value * 31 + 7;
}

static void call(long calls)
{
	uint64_t value = 1, right = 1;
	for (long i = 0; i < calls; i++) {
		value = called(value);
		right = right * 31 + 7;
	}
	CHECK(value == right);
}

static void say(long pid, long calls)
{
	char line[64];
	int length = snprintf(line, sizeof line, "by %ld %ld\n", pid, calls);
	CHECK(write(1, line, (size_t)length) == length);
}

static void enter(const char *kind)
{
	unsigned otherwise = strcmp(kind, "kill") == 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | 1;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, otherwise),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
	if (strcmp(kind, "strict") == 0) {
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0);
		return;
	}
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
}

static void in_child(const char *kind, long calls, int before)
{
	long pid = getpid();
	char byte;
	if (before)
		call(calls);
	enter(kind);
	call(calls);
	say(pid, calls + (before ? calls : 0));
	if (check_wait) {
		while (read(0, &byte, 1) == 1)
			;
		call(1);
	}
	syscall(SYS_exit, 0);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	CHECK(argc > 2);
	long calls = atol(argv[2]);
	pid_t children[2];
	if (check_wait) {
		CHECK(write(1, "ready\n", 6) == 6);
		wait_for_line();
	}
	for (int before = 0; before < 2; before++) {
		children[before] = fork();
		if (children[before] == 0)
			in_child(argv[1], calls, before);
	}
	call(1);
	say(getpid(), 1);
	for (int i = 0; i < 2; i++) {
		int status = 1;
		CHECK(waitpid(children[i], &status, 0) == children[i]);
		CHECK(status == 0);
	}
	puts("OK");
	return 0;
}
