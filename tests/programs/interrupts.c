/* System calls by `int $0x80`, with the numbers of 32-bit programs, each a known number of times; some are made by the
 * C library, too.
 * interrupts [threads] [rounds]
 * Prints `name number` for each. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "asleep.h"

/* Numbers of 32-bit programs. */
enum { FORK = 2, READ = 3, WRITE = 4, CLOSE = 6, WAITPID = 7, GETPID = 20, GETPPID = 64, GETSID = 147 };
enum { EXIT_GROUP = 252 };

static long rounds;
static pid_t parent;
static int ends[2];
static volatile long signals;
/* The calls' memory, at an address of 32 bits. */
static char *low;

/* The number is a constant, and stands before the instruction. No register but eax may change. */
#define INTERRUPT(number, first, second, third)                                                              \
	({                                                                                                       \
		long result_, r8_ = 8, r9_ = 9, r11_ = 11;                                                           \
		__asm__ volatile("mov %[r8], %%r8; mov %[r9], %%r9; mov %[r11], %%r11; mov %[n], %%eax; int $0x80;"  \
		                 "mov %%r8, %[r8]; mov %%r9, %[r9]; mov %%r11, %[r11]"                               \
		                 : "=&a"(result_), [r8] "+m"(r8_), [r9] "+m"(r9_), [r11] "+m"(r11_)                  \
		                 : [n] "i"(number), "b"((long)(first)), "c"((long)(second)), "d"((long)(third))      \
		                 : "r8", "r9", "r11", "memory");                                                     \
		CHECK(r8_ == 8 && r9_ == 9 && r11_ == 11);                                                           \
		result_;                                                                                             \
	})

/* copy_file_range (377) with six arguments, on a descriptor that is not there. */
long with_six(void);
__asm__(".text\n"
        ".globl with_six\n"
        ".type with_six, @function\n"
        "with_six:\n"
        "	push %rbx\n"
        "	push %rbp\n"
        "	mov $1001, %ebx\n"
        "	mov $2, %ecx\n"
        "	mov $3, %edx\n"
        "	mov $4, %esi\n"
        "	mov $5, %edi\n"
        "	mov $6, %ebp\n"
        "	mov $377, %eax\n"
        "	int $0x80\n"
        "	pop %rbp\n"
        "	pop %rbx\n"
        "	ret\n"
        ".size with_six, . - with_six\n");

static void *work(void *unused)
{
	for (long i = 0; i < rounds; i++) {
		CHECK(INTERRUPT(GETPPID, 0, 0, 0) == parent);
		CHECK(getppid() == parent);
		CHECK(INTERRUPT(GETPID, 0, 0, 0) == getpid());
		CHECK(INTERRUPT(CLOSE, -1, 0, 0) == -EBADF);
		CHECK(INTERRUPT(WAITPID, -1, 0, WNOHANG) == -ECHILD);
		CHECK(with_six() == -EBADF);
	}
	return unused;
}

/* Also makes a call itself, while another one is interrupted. */
static void on_signal(int signal)
{
	signals++;
	/* 0, when this process sees no leader of its session, as in a process namespace of its own. */
	CHECK(INTERRUPT(GETSID, 0, 0, 0) >= 0);
	if (signal == SIGUSR2)
		CHECK(INTERRUPT(WRITE, ends[1], low, 7) == 7);
}

/* A read that a signal ends, or that the kernel restarts when the signal's handler has written. The sender waits for
 * the reader to sleep. */
static void interrupted_read(int signal, int flags, long expected)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_signal;
	action.sa_flags = flags;
	CHECK(sigaction(signal, &action, NULL) == 0);
	pid_t reader = getpid(), child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		wait_until_asleep(reader);
		kill(reader, signal);
		_exit(0);
	}
	CHECK(INTERRUPT(READ, ends[0], low + 64, 64) == expected);
	CHECK(waitpid(child, NULL, 0) == child);
}

static void children(void)
{
	for (int i = 0; i < 3; i++) {
		pid_t child = (pid_t)INTERRUPT(FORK, 0, 0, 0);
		CHECK(child >= 0);
		if (child == 0) {
			INTERRUPT(EXIT_GROUP, 3, 0, 0);
			_exit(1);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
	}
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long threads = number(argc, argv, 1, 2);
	rounds = number(argc, argv, 2, 100);
	CHECK(threads >= 1 && threads <= 16);
	low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	CHECK(low != MAP_FAILED);
	strcpy(low, "int 80");
	CHECK(pipe(ends) == 0);
	wait_for_go();
	parent = getppid();
	pthread_t ids[16];
	for (long i = 0; i < threads; i++)
		CHECK(pthread_create(&ids[i], NULL, work, NULL) == 0);
	for (long i = 0; i < threads; i++)
		CHECK(pthread_join(ids[i], NULL) == 0);
	interrupted_read(SIGUSR1, 0, -EINTR);
	interrupted_read(SIGUSR2, SA_RESTART, 7);
	CHECK(memcmp(low + 64, low, 7) == 0);
	children();
	long each = threads * rounds;
	printf("getppid %ld\ngetpid %ld\nunknown %ld\nclose %ld\n", 2 * each + 1, 2 * each + 2, each, each);
	printf("copy_file_range %ld\ngetsid %ld\nwrites 1\nreads 2\nfork 3\n", each, signals);
	return finish(mix(MIX_START, (uint64_t)each));
}
