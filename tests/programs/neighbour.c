/* Functions in which only a displaced neighbour makes room for a springboard: no padding is in reach. Each has one long
 * instruction. Branches lead to it, to the site before it, and to the instruction after it. Threads are in all of them
 * all the time, and signals interrupt them everywhere, between the two jumps too.
 *
 *     neighbour [threads] */
#include "alarmed.h"

static const long one __attribute__((used)) = 1;

/* A stretch of code that is longer than a short jump reaches, without long instructions or padding. */
#define FAR(name)                                                                                            \
	".globl " #name "\n"                                                                                     \
	".type " #name ", @function\n" #name ":\n"                                                               \
	"	.rept 40\n"                                                                                          \
	"	lea 1(%rdi), %rax\n"                                                                                 \
	"	.endr\n"                                                                                             \
	"	ret\n"                                                                                               \
	".size " #name ", . - " #name "\n"

/* Argument 0 reaches the site by a branch, 3 by running into it; 1 reaches the long instruction, 2 the one after
   it. */
#define NEIGHBOUR(name, instruction)                                                                         \
	".globl " #name "\n"                                                                                     \
	".type " #name ", @function\n" #name ":\n"                                                               \
	"	mov %edi, %eax\n"                                                                                    \
	"	xor %ecx, %ecx\n"                                                                                    \
	"	and $3, %edi\n"                                                                                      \
	"	cmp $1, %edi\n"                                                                                      \
	"	jb 1f\n"                                                                                             \
	"	je 2f\n"                                                                                             \
	"	cmp $2, %edi\n"                                                                                      \
	"	je 3f\n"                                                                                             \
	#name "_site:\n"                                                                                         \
	"1:	add $5, %eax\n"                                                                                      \
	"	inc %edi\n"                                                                                          \
	"2:	" instruction "\n"                                                                                   \
	"3:	add %ecx, %eax\n"                                                                                    \
	"	ret\n"                                                                                               \
	".size " #name ", . - " #name "\n"

__asm__(".text\n" FAR(far_0) NEIGHBOUR(neighbour_ten, "movabs $1, %rcx") FAR(far_1)
		NEIGHBOUR(neighbour_seven, "mov one(%rip), %rcx") FAR(far_2) NEIGHBOUR(neighbour_six, "mov one(%rip), %ecx")
			FAR(far_3));

extern int neighbour_ten(int value);
extern int neighbour_seven(int value);
extern int neighbour_six(int value);
extern char neighbour_ten_site, neighbour_seven_site, neighbour_six_site;

static long signals;

static void all_of_them(int value)
{
	static const int added[4] = {6, 1, 0, 6};
	CHECK(neighbour_ten(value) == value + added[value & 3]);
	CHECK(neighbour_seven(value) == value + added[value & 3]);
	CHECK(neighbour_six(value) == value + added[value & 3]);
}

static void on_alarm(int signal)
{
	(void)signal;
	all_of_them(3);
	__atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED);
}

static void *work(void *unused)
{
	(void)unused;
	while (!stop)
		for (int value = 0; value < 1000; value++)
			all_of_them(value);
	return NULL;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	/* The address of the site, for the test. */
	CHECK(&neighbour_ten_site - (char *)neighbour_ten == 0x13);
	CHECK(&neighbour_seven_site - (char *)neighbour_seven == 0x13);
	CHECK(&neighbour_six_site - (char *)neighbour_six == 0x13);
	long threads = number(argc, argv, 1, 2);
	if (threads == 0) {
		/* A known number of calls. */
		for (int value = 0; value < 8000; value++)
			all_of_them(value);
		return finish(MIX_START);
	}
	work_alarmed(threads, work, on_alarm);
	printf("signals %ld\n", signals);
	return finish(MIX_START);
}
