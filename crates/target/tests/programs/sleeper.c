/* sleeper KIND COUNT: makes a sleeping system call COUNT times and says how often it ended wrongly: too early,
 * with EINTR, with the wrong data, or with changed registers or SIMD state. First it says "ready" and waits for a
 * byte. All kinds but `read` continue after COUNT times until there is more input, or the input ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MS 20

static long now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

static int has_input(void)
{
	struct pollfd input = { 0, POLLIN, 0 };
	return poll(&input, 1, 0) != 0;
}

/* A raw system call, before and after which xmm6, rbx, r12 and r13 must be the same. */
static long checked_syscall(long number, long a, long b, long c, long d, long e, long *damage)
{
	register long r10 asm("r10") = d;
	register long r8 asm("r8") = e;
	register long r9 asm("r9") = 0;
	long result, sum, pattern = 0x1122334455667788, back;
	asm volatile("mov $0x5151, %%ebx\n\tmov $0x5252, %%r12d\n\tmov $0x5353, %%r13d\n\t"
		     "movq %[pattern], %%xmm6\n\t"
		     "syscall\n\t"
		     "mov %%rbx, %[sum]\n\tadd %%r12, %[sum]\n\tadd %%r13, %[sum]\n\t"
		     "movq %%xmm6, %[back]"
		     : "=a"(result), [sum] "=&r"(sum), [back] "=&r"(back)
		     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9), [pattern] "r"(pattern)
		     : "rcx", "r11", "rbx", "r12", "r13", "memory", "xmm6");
	*damage += sum != 0x5151 + 0x5252 + 0x5353 || back != pattern;
	return result;
}

int main(int count, char **arguments)
{
	if (count < 3)
		return 2;
	const char *kind = arguments[1];
	int rounds = atoi(arguments[2]);
	long damage = 0, early = 0, wrong = 0;
	int epoll = epoll_create1(0), word = 0, pair[2];
	int semaphore = semget(IPC_PRIVATE, 1, 0600);
	struct timespec brief = { 0, MS * 1000000L };
	struct timeval limit = { 0, MS * 1000 };
	sigset_t usr2, none;
	sigemptyset(&none);
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	sigprocmask(SIG_BLOCK, &usr2, 0);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 3;
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	char go;
	if (write(1, "ready\n", 6) != 6 || read(0, &go, 1) != 1)
		return 1;
	int reads = !strcmp(kind, "read");
	for (int i = 0; i < rounds || (!reads && !has_input()); i++) {
		long from = now_us(), result, expected;
		struct sembuf operation = { 0, -1, 0 };
		char bytes[8] = "";
		int timed = 1;
#define CALL(number, a, b, c, d, e) checked_syscall(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), &damage)
		if (!strcmp(kind, "nanosleep"))
			result = CALL(SYS_nanosleep, &brief, 0, 0, 0, 0), expected = 0;
		else if (!strcmp(kind, "clock_nanosleep"))
			result = CALL(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &brief, 0, 0), expected = 0;
		else if (!strcmp(kind, "poll"))
			result = CALL(SYS_poll, 0, 0, MS, 0, 0), expected = 0;
		else if (!strcmp(kind, "ppoll"))
			brief.tv_nsec = MS * 1000000L, result = CALL(SYS_ppoll, 0, 0, &brief, &none, 8), expected = 0,
			brief.tv_nsec = MS * 1000000L;
		else if (!strcmp(kind, "futex"))
			result = CALL(SYS_futex, &word, FUTEX_WAIT, 0, &brief, 0), expected = -ETIMEDOUT;
		else if (!strcmp(kind, "epoll"))
			result = CALL(SYS_epoll_wait, epoll, bytes, 0x1, MS, 0), expected = 0;
		else if (!strcmp(kind, "sigtimedwait"))
			result = CALL(SYS_rt_sigtimedwait, &usr2, 0, &brief, 8, 0), expected = -EAGAIN;
		else if (!strcmp(kind, "semtimedop"))
			result = CALL(SYS_semtimedop, semaphore, &operation, 1, &brief, 0), expected = -EAGAIN;
		else if (!strcmp(kind, "receive"))
			result = CALL(SYS_recvfrom, pair[0], bytes, 8, 0, 0), expected = -EAGAIN;
		else if (!strcmp(kind, "read"))
			result = CALL(SYS_read, 0, bytes, 4, 0, 0), expected = 4, timed = 0, wrong += memcmp(bytes, "data", 4) != 0;
		else
			return 4;
		if (result != expected) {
			fprintf(stderr, "%s returned %ld\n", kind, result);
			wrong++;
		}
		/* A socket's timeout is counted in the kernel's ticks, which come late in a virtual machine, several at once.
		 * The timeout begins anew with each call, so a call that a stop had cut short would be far too short. */
		long least = strcmp(kind, "receive") ? MS * 1000L : MS * 500L;
		early += timed && now_us() - from < least;
	}
	semctl(semaphore, 0, IPC_RMID);
	sigset_t after;
	sigprocmask(SIG_BLOCK, 0, &after);
	wrong += sigismember(&after, SIGUSR2) != 1 || sigismember(&after, SIGHUP) != 0;
	printf("damage=%ld early=%ld wrong=%ld\n", damage, early, wrong);
	return 0;
}
