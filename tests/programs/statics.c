/* Static probes, as sys/sdt.h makes them, written out so that every kind of operand is there whatever the compiler
 * likes. statics [rounds [hold | fork]]
 *
 *   test:counted      i, 2 * i (a 32-bit negative number), a string; twice in one function, by other operands
 *   test:guarded      behind a semaphore: i
 *   test:kinds, kinds2, kinds3, memory, unreadable      known values, see the operands
 *
 * hold: waits for a line when the rounds are done, and says what the semaphore is then.
 * fork: has a child, which waits, and says what its own semaphore is then. */
#include <signal.h>
#include <sys/wait.h>
#include "check.h"

#define NOTE(provider, name, semaphore, arguments)                                                           \
	"990:	nop\n"                                                                                           \
	".pushsection .note.stapsdt,\"?\",\"note\"\n"                                                            \
	".balign 4\n"                                                                                            \
	".4byte 992f-991f, 994f-993f, 3\n"                                                                       \
	"991:	.asciz \"stapsdt\"\n"                                                                            \
	"992:	.balign 4\n"                                                                                     \
	"993:	.8byte 990b\n"                                                                                   \
	".8byte _.stapsdt.base\n"                                                                                \
	".8byte " semaphore "\n"                                                                                 \
	".asciz \"" provider "\"\n"                                                                              \
	".asciz \"" name "\"\n"                                                                                  \
	".asciz \"" arguments "\"\n"                                                                             \
	"994:	.balign 4\n"                                                                                     \
	".popsection\n"                                                                                          \
	".ifndef _.stapsdt.base\n"                                                                               \
	".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                                  \
	".weak _.stapsdt.base\n"                                                                                 \
	".hidden _.stapsdt.base\n"                                                                               \
	"_.stapsdt.base: .space 1\n"                                                                             \
	".size _.stapsdt.base, 1\n"                                                                              \
	".popsection\n"                                                                                          \
	".endif\n"

unsigned short test_guarded_semaphore __attribute__((section(".probes"), used));
int table[4] __attribute__((used)) = { 10, -20, 30, -40 };

PROBED void counted(long i)
{
	const char *text = i % 2 ? "odd" : "even";
	int twice = (int)(-2 * i);
	if (i % 4 == 0)
		__asm__ volatile(NOTE("test", "counted__here", "0", "8@%0 -4@%1 8@%2") : : "r"(i), "r"(twice), "r"(text));
	else
		__asm__ volatile(NOTE("test", "counted__here", "0", "-8@%0 -4@%1 8@%2") : : "m"(i), "m"(twice), "m"(text));
}

PROBED long guarded(long i)
{
	if (__builtin_expect(*(volatile unsigned short *)&test_guarded_semaphore == 0, 1))
		return 0;
	__asm__ volatile(NOTE("test", "guarded", "test_guarded_semaphore", "-8@%0") : : "nor"(i));
	return 1;
}

/* Registers by all of their names; nothing is assumed of the compiler. */
PROBED void kinds(void)
{
	__asm__ volatile(
		"movabs $0x80123456789abcde, %%rax\n mov $-3, %%rbx\n mov $0x1234, %%ecx\n mov $0xfedc, %%edx\n"
		"mov $0x77, %%r8d\n mov $-9, %%r15\n mov $0x100000041, %%r12\n"
		NOTE("test", "kinds", "0", "8@%%rax 1@%%al -1@%%al 1@%%ah -8@%%rbx 4@%%ebx 2@%%cx -2@%%dx 1@%%r8b -4@%%r12d")
		: : : "rax", "rbx", "rcx", "rdx", "r8", "r12", "r15");
}

PROBED void kinds2(void)
{
	__asm__ volatile(
		"mov $-9, %%r15\n mov $-10, %%r14\n mov $-11, %%r13\n mov $-12, %%r11\n mov $-13, %%r10\n mov $-14, %%r9\n"
		"mov $-15, %%rsi\n mov $-16, %%rdi\n"
		NOTE("test", "kinds2", "0", "-8@%%r15 -8@%%r14 -8@%%r13 -8@%%r11 -8@%%r10 -8@%%r9 -8@%%rsi -8@%%rdi -4@$-77 8@$0x7fffffff")
		: : : "r15", "r14", "r13", "r11", "r10", "r9", "rsi", "rdi");
}

PROBED void memory(const int *values, long index)
{
	__asm__ volatile(
		"sub $256, %%rsp\n movq $0x4142, 8(%%rsp)\n"
		NOTE("test", "memory", "0",
		     "-4@4(%0) 4@4(%0) -4@(%0,%1,4) -4@-4(%0,%1,4) 2@8(%%rsp) 1@9(%%rsp) -4@table+12(%%rip) -4@8+table(%%rip) 8@0(%0,%1) %1")
		"add $256, %%rsp\n"
		: : "r"(values), "r"(index) : "memory");
}

PROBED void unreadable(double value, long i)
{
	__asm__ volatile(NOTE("test", "unreadable", "0", "8@%1 8f@%0 8@%%fs:0 -4@$1 8@nobody(%%rip)") : : "x"(value), "r"(i));
}

static void woken(int signal)
{
	(void)signal;
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long rounds = number(argc, argv, 1, 100), seen = 0;
	const char *mode = argc > 2 ? argv[2] : "";
	wait_for_go();
	for (long i = 0; i < rounds; i++) {
		counted(i);
		seen += guarded(i);
		kinds();
		kinds2();
		memory(table, 2);
		unreadable(1.5, i);
	}
	printf("seen %ld\n", seen);
	if (strcmp(mode, "hold") == 0) {
		printf("worked\n");
		wait_for_line();
	}
	if (strcmp(mode, "fork") == 0) {
		sigset_t none, usr1;
		sigemptyset(&none);
		sigemptyset(&usr1);
		sigaddset(&usr1, SIGUSR1);
		signal(SIGUSR1, woken);
		sigprocmask(SIG_BLOCK, &usr1, NULL);
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			sigsuspend(&none);
			counted(1);
			guarded(1);
			printf("child semaphore %d\n", test_guarded_semaphore);
			fflush(stdout);
			_exit(0);
		}
		printf("child %d\n", child);
		wait_for_line();
		kill(child, SIGUSR1);
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	printf("semaphore %d\n", test_guarded_semaphore);
	return finish(mix(MIX_START, (uint64_t)rounds));
}
