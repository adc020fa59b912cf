/* Arrivals in the middle of a run: calls to addresses inside a function's first bytes, a thread that spins there, a
 * thread that sleeps in a system call there.
 * middle calls [rounds]     `entered` is how often the first instruction of each function ran
 * middle parked             prints `parked` when its threads spin and sleep; ends when a line comes */
#include <pthread.h>
#include "check.h"

/* clang-format off */
#define FUNCTION(name) ".p2align 4\n.globl " name "\n.type " name ", @function\n" name ":\n"
#define END(name) ".size " name ", . - " name "\n"
__asm__(".text\n"
	/* Instruction boundaries at the bytes 2 and 4 of the jump. */
	FUNCTION("middle_twos") " incl %eax\n incl %eax\n incl %eax\n incl %eax\n ret\n" END("middle_twos")
	/* Boundaries at the bytes 1, 2, 3 and 4. */
	FUNCTION("middle_ones") " cmc\n cmc\n cmc\n cmc\n cmc\n cmc\n sbbl %eax, %eax\n ret\n" END("middle_ones")
	/* Boundaries at the bytes 1 and 4, as in the beginning of compiled functions. */
	FUNCTION("middle_frame") " pushq %rbp\n movq %rsp, %rbp\n leaq (%rax,%rdi), %rax\n popq %rbp\n ret\n" END("middle_frame")
	/* A boundary at byte 3; a relative operand is displaced. */
	FUNCTION("middle_relative") " xorq %rdx, %rdx\n addq middle_seven(%rip), %rax\n ret\n" END("middle_relative")
	/* A loop whose branch leads into the run of a patch. */
	FUNCTION("middle_loop") " xorl %eax, %eax\n1: incl %eax\n decl %edi\n jnz 1b\n ret\n" END("middle_loop")
	/* long middle_call(void *where, long eax, long carry, long rdi): calls any address with registers of choice. */
	FUNCTION("middle_call") " pushq %rbx\n movq %rdi, %rbx\n movq %rcx, %rdi\n movq %rsi, %rax\n shrq $1, %rdx\n"
	" call *%rbx\n popq %rbx\n ret\n" END("middle_call")
	/* Enters middle_frame at +4, with its frame made here. */
	FUNCTION("middle_enter_frame") " pushq %rbp\n movq %rsp, %rbp\n movq %rsi, %rax\n leaq middle_frame+4(%rip), %rdx\n"
	" jmp *%rdx\n" END("middle_enter_frame")
	/* Spins on its first two instructions. */
	FUNCTION("middle_spin") " pause\n cmpl $0, middle_released(%rip)\n je middle_spin\n movl $77, %eax\n ret\n" END("middle_spin")
	/* Sleeps in read(edi, rsi, rdx): the thread's instruction pointer is at 4, and at 2 when the kernel restarts it. */
	FUNCTION("middle_sleep") " xorl %eax, %eax\n syscall\n nop\n nop\n ret\n" END("middle_sleep")
	".section .rodata\n.p2align 3\nmiddle_seven: .quad 7\n.text\n");
/* clang-format on */

extern char middle_twos[], middle_ones[], middle_frame[], middle_relative[];
long middle_call(const void *where, long eax, long carry, long rdi);
long middle_enter_frame(long rdi, long rax);
long middle_loop(long count);
long middle_spin(void);
long middle_sleep(long fd, void *buffer, long bytes);
volatile int middle_released;

static void calls(long rounds)
{
	uint64_t checksum = MIX_START;
	for (long round = 0; round < rounds; round++) {
		for (int at = 0; at <= 8; at += 2)
			CHECK((int)middle_call(middle_twos + at, 100, 0, 0) == 100 + (8 - at) / 2);
		for (int at = 0; at <= 6; at++)
			for (int carry = 0; carry < 2; carry++)
				CHECK((int)middle_call(middle_ones + at, 5, carry, 0) == -((carry + 6 - at) & 1));
		CHECK(middle_call(middle_frame, 30, 0, 12) == 42);
		CHECK(middle_enter_frame(12, 40) == 52);
		CHECK(middle_call(middle_relative, 35, 0, 0) == 42);
		CHECK(middle_call(middle_relative + 3, 36, 0, 0) == 43);
		CHECK(middle_loop(9) == 9);
		checksum = mix(checksum, (uint64_t)round);
	}
	printf("twos %ld\nones %ld\nframe %ld\nrelative %ld\nloop %ld\n", rounds, rounds * 2, rounds, rounds, rounds);
	exit(finish(checksum));
}

static int ends[2];

static void *spin(void *unused)
{
	(void)unused;
	CHECK(middle_spin() == 77);
	return NULL;
}

static void *sleeping(void *unused)
{
	(void)unused;
	char bytes[8] = "";
	CHECK(middle_sleep(ends[0], bytes, 8) == 5);
	CHECK(memcmp(bytes, "wake", 5) == 0);
	return NULL;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	if (argc < 2 || strcmp(argv[1], "calls") == 0)
		calls(number(argc, argv, 2, 100));
	CHECK(pipe(ends) == 0);
	pthread_t spinner, sleeper;
	CHECK(pthread_create(&spinner, NULL, spin, NULL) == 0);
	CHECK(pthread_create(&sleeper, NULL, sleeping, NULL) == 0);
	usleep(20000);
	printf("parked\n");
	wait_for_line();
	middle_released = 1;
	CHECK(write(ends[1], "wake", 5) == 5);
	CHECK(pthread_join(spinner, NULL) == 0 && pthread_join(sleeper, NULL) == 0);
	return finish(MIX_START);
}
