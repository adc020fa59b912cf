/* Watchpoints in programs with their own events and signals, children and sandboxes; and which watchpoints are
 * refused and listed. */
#define _GNU_SOURCE
#include "watch.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static volatile uint64_t mine;
static volatile int own_traps, own_data;

static void on_trap(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	(void)context;
	own_traps = own_traps + 1;
	own_data = information->si_code == 6 ? *(const int *)((const char *)information + 24) : -1;
}

static void own_events(void)
{
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	struct np_watchpoint watch = { NP_SIZE(struct np_watchpoint), .addr = (void *)&watched, .length = 8,
				       .type = NP_WATCH_WRITE, .handler = counts };
	check(np_register_watchpoint(&watch), "register");
	sigaction(SIGTRAP, &action, NULL);
	struct perf_event_attr attributes = { .type = PERF_TYPE_BREAKPOINT, .size = 128, .sample_period = 1,
					      .bp_type = HW_BREAKPOINT_W, .bp_addr = (uint64_t)&mine, .bp_len = 8,
					      .exclude_kernel = 1 };
	((uint64_t *)&attributes)[5] |= 1UL << 36 | 1UL << 37;
	((uint64_t *)&attributes)[15] = 4711;
	int event = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0UL);
	ran = 0;
	for (int round = 0; round < 100; round++) {
		mine = 1;
		writes(1);
	}
	raise(SIGTRAP);
	int last = own_data;
	mine = 1;
	printf("own events: %s, %d own traps, data %d and %d, %lu ran\n", event < 0 ? "NONE" : "opened", own_traps, last,
	       own_data, ran);
	close(event);
	/* The signal for an access that the machine does not show in DR6, and an instruction that raises the same signal. */
	siginfo_t lost = { .si_signo = SIGTRAP, .si_code = 1 };
	uint64_t hits = np_watchpoint_hits(&watch);
	own_traps = 0;
	if (syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGTRAP, &lost))
		wrong++;
	printf("lost: %lu hit, %lu missed, %d own, ", np_watchpoint_hits(&watch) - hits, np_watchpoint_nmissed(&watch), own_traps);
	__asm__ volatile(".byte 0xf1" ::: "memory");
	printf("then %d own, %lu hit, ", own_traps, np_watchpoint_hits(&watch) - hits);
	/* As some virtual machines report it: in front of the int1, where the return from this call leads. */
	long answer = SYS_rt_tgsigqueueinfo;
	register siginfo_t *information __asm__("r10") = &lost;
	own_traps = 0;
	__asm__ volatile("syscall\n\t.byte 0xf1"
			 : "+a"(answer)
			 : "D"(getpid()), "S"(gettid()), "d"(SIGTRAP), "r"(information)
			 : "rcx", "r11", "memory");
	printf("reported in front of itself %d own, %lu hit\n", own_traps, np_watchpoint_hits(&watch) - hits);
	check(np_unregister_watchpoint(&watch), "unregister");
}

static void forks(void)
{
	struct np_watchpoint watch = { NP_SIZE(struct np_watchpoint), .addr = (void *)&watched, .length = 8,
				       .type = NP_WATCH_WRITE, .handler = counts };
	check(np_register_watchpoint(&watch), "register");
	for (int round = 0; round < 10; round++)
		writes(1);
	int status = 0;
	pid_t child = fork();
	if (child == 0) {
		ran = 0;
		for (int round = 0; round < 7; round++)
			writes(1);
		int good = ran == 7 && np_watchpoint_hits(&watch) == 17 && np_watchpoint_nmissed(&watch) == 0 &&
			   np_unregister_watchpoint(&watch) == 0;
		writes(1);
		_exit(good && ran == 7 ? 3 : 4);
	}
	waitpid(child, &status, 0);
	writes(1);
	printf("fork: child %s, parent %lu, %lu missed\n", WEXITSTATUS(status) == 3 ? "good" : "BAD",
	       np_watchpoint_hits(&watch), np_watchpoint_nmissed(&watch));
	/* Like some programs, this program closes all descriptors that it does not know. */
	for (int descriptor = 3; descriptor < 2000; descriptor++)
		close(descriptor);
	writes(1);
	printf("closed: %lu hits, enable %s\n", np_watchpoint_hits(&watch), np_strerror(np_enable_watchpoint(&watch)));
	check(np_unregister_watchpoint(&watch), "unregister");
	printf("closed: unregistered\n");
}

/* ---- sandboxes ---- */

/* After this call, a thread that makes any other system call is killed. */
static void allow_little(void)
{
	static const unsigned allowed[] = { SYS_rt_sigreturn, SYS_rt_tgsigqueueinfo, SYS_exit_group };
	enum { COUNT = sizeof(allowed) / sizeof(allowed[0]) };
	struct sock_filter filter[2 * COUNT + 2] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)) };
	for (int index = 0; index < COUNT; index++) {
		filter[2 * index + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[index], 0, 1);
		filter[2 * index + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	filter[2 * COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(1);
}

static int before(struct np_probe *probe, struct np_regs *regs)
{
	(void)regs;
	++*(int *)probe->user;
	return 0;
}

/* No hit makes a system call: neither of watchpoints, even of accesses that the machine has lost, nor of jumps and
 * breakpoints. The program still gets the signals that it raises itself. */
static void sandboxed(void)
{
	int jumped = 0, trapped = 0, status = 0;
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	struct np_watchpoint watch = { NP_SIZE(struct np_watchpoint), .addr = (void *)&watched, .length = 8,
				       .type = NP_WATCH_WRITE, .handler = counts };
	struct np_probe jump = { NP_SIZE(struct np_probe), .addr = (void *)doubled, .pre_handler = before, .user = &jumped };
	struct np_probe trap = { NP_SIZE(struct np_probe), .addr = (void *)writes, .pre_handler = before, .user = &trapped,
				 .flags = NP_PROBE_TRAP };
	sigaction(SIGTRAP, &action, NULL);
	check(np_register_watchpoint(&watch), "register");
	check(np_register_probe(&jump), "jump");
	check(np_register_probe(&trap), "trap");
	pid_t child = fork();
	if (child == 0) {
		pid_t process = getpid(), thread = gettid();
		siginfo_t lost = { .si_signo = SIGTRAP, .si_code = 1 };
		uint64_t sum = 0;
		/* The first hit of a thread may make system calls. */
		writes(1);
		doubled(1);
		ran = own_traps = jumped = trapped = 0;
		allow_little();
		for (int round = 0; round < 10; round++) {
			writes(1);
			sum += doubled(4);
			syscall(SYS_rt_tgsigqueueinfo, process, thread, SIGTRAP, &lost);
			__asm__ volatile(".byte 0xf1" ::: "memory");
		}
		_exit(ran != 20 ? 10 : own_traps != 10 ? 11 : jumped != 10 || trapped != 10 ? 12 : sum != 80 ? 13 : 7);
	}
	waitpid(child, &status, 0);
	printf("sandboxed: %s %d\n", WIFEXITED(status) ? "ended with" : "killed by",
	       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	check(np_unregister_probe(&jump), "jump");
	check(np_unregister_probe(&trap), "trap");
	check(np_unregister_watchpoint(&watch), "unregister");
}

/* ---- refusals ---- */

static void forbid(int answer)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)answer),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(1);
}

static void refusals(void)
{
	static uint64_t many[8];
	static struct np_watchpoint watches[5];
	struct np_watchpoint first = { NP_SIZE(struct np_watchpoint), .addr = (void *)&watched, .length = 8,
				       .type = NP_WATCH_WRITE, .handler = counts };
	check(np_register_watchpoint(&first), "register");
	int twice = np_register_watchpoint(&first);
	check(np_unregister_watchpoint(&first), "unregister");
	int gone = np_unregister_watchpoint(&first);
	printf("twice %d, gone %d", twice, gone);
	int bad[8], count = 0;
	struct np_watchpoint wrongs[] = {
		{ 8, .addr = (void *)&watched, .length = 8, .type = NP_WATCH_WRITE },
		{ NP_SIZE(struct np_watchpoint), .addr = (void *)&watched, .length = 3, .type = NP_WATCH_WRITE },
		{ NP_SIZE(struct np_watchpoint), .addr = (char *)&watched + 1, .length = 8, .type = NP_WATCH_WRITE },
		{ NP_SIZE(struct np_watchpoint), .addr = (void *)&watched, .length = 8, .type = 1 },
		{ NP_SIZE(struct np_watchpoint), .addr = (void *)doubled, .length = 8, .type = NP_WATCH_EXECUTE },
		{ NP_SIZE(struct np_watchpoint), .addr = NULL, .length = 8, .type = NP_WATCH_WRITE },
		{ NP_SIZE(struct np_watchpoint), .addr = (void *)~7UL, .length = 8, .type = NP_WATCH_WRITE },
		{ NP_SIZE(struct np_watchpoint), .addr = (void *)&watched, .length = 8, .type = 2, .flags = 8 },
	};
	for (; count < 8; count++)
		bad[count] = np_register_watchpoint(&wrongs[count]);
	printf(", arguments");
	for (count = 0; count < 8; count++)
		printf(" %d", bad[count]);
	int taken = 0, error = 0;
	for (; taken < 5 && !error; taken++) {
		watches[taken] = (struct np_watchpoint){ NP_SIZE(struct np_watchpoint), .addr = &many[taken], .length = 8,
							 .type = NP_WATCH_WRITE, .handler = counts };
		error = np_register_watchpoint(&watches[taken]);
	}
	printf("\n%d taken, then %d (%s)\n", taken - 1, error, np_strerror(error));
	struct np_watchpoint overlapping = { NP_SIZE(struct np_watchpoint), .addr = (char *)&many[1] + 4, .length = 4,
					     .type = NP_WATCH_READ_WRITE, .handler = counts };
	printf("overlapping: %d\n", np_register_watchpoint(&overlapping));
	for (int index = 0; index < taken - 1; index++)
		check(np_unregister_watchpoint(&watches[index]), "unregister");
	check(np_register_watchpoint(&first), "all are free again");
	check(np_unregister_watchpoint(&first), "unregister");
	int answers[] = { EACCES, EOPNOTSUPP, ENOENT, EMFILE };
	for (int index = 0; index < 4; index++) {
		fflush(stdout);
		pid_t child = fork();
		if (child == 0) {
			forbid(answers[index]);
			_exit(-np_register_watchpoint(&first));
		}
		int status = 0;
		waitpid(child, &status, 0);
		printf("%s: -%d\n", strerror(answers[index]), WEXITSTATUS(status));
	}
}

static int prints(const struct np_info *info, void *unused)
{
	(void)unused;
	printf("listed: %c %s, enabled %d, %lu hits\n", info->kind, info->addr == (void *)&watched ? "there" : "ELSEWHERE",
	       info->enabled, info->hits);
	return 0;
}

static void listed(void)
{
	struct np_watchpoint watch = { NP_SIZE(struct np_watchpoint), .addr = (void *)&watched, .length = 8,
				       .type = NP_WATCH_WRITE, .handler = counts };
	check(np_register_watchpoint(&watch), "register");
	writes(1);
	np_list(prints, NULL);
	check(np_disable_watchpoint(&watch), "disable");
	writes(1);
	np_list(prints, NULL);
	check(np_unregister_watchpoint(&watch), "unregister");
}

PARTS({ "own", own_events }, { "forks", forks }, { "sandboxed", sandboxed }, { "refusals", refusals }, { "listed", listed })
