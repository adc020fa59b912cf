/* Functions in which a branch leads to the instruction after each short one: their jumps share bytes with other jumps.
 * Threads are in them all the time, and signals interrupt them everywhere.
 * returns [threads] */
#include "alarmed.h"

/* Returns from each case in three bytes; a branch leads to each of these instructions. */
__asm__(".text\n"
	".globl three_bytes\n"
	".type three_bytes, @function\n"
	"three_bytes:\n"
	"	xor %eax, %eax\n"
	"	cmp $1, %edi\n"
	"	jb 1f\n"
	"	je 2f\n"
	"	cmp $3, %edi\n"
	"	jb 3f\n"
	"	je 4f\n"
	"	jmp 5f\n"
	"1:	mov $10, %al\n"
	"	ret\n"
	"2:	mov $11, %al\n"
	"	ret\n"
	"3:	mov $12, %al\n"
	"	ret\n"
	"4:	mov $13, %al\n"
	"	ret\n"
	"5:	lea 10(%rdi), %rax\n"
	"	ret\n"
	".size three_bytes, . - three_bytes\n"
	/* The last return has room only in the next function. */
	".globl no_room\n"
	".type no_room, @function\n"
	"no_room:\n"
	"	lea 1(%rdi), %eax\n"
	"	test $1, %edi\n"
	"	je 1f\n"
	"	lea 2(%rdi), %eax\n"
	"	mov %eax, %ecx\n"
	"	mov %ecx, %eax\n"
	"1:	ret\n"
	".size no_room, . - no_room\n"
	".globl behind_no_room\n"
	".type behind_no_room, @function\n"
	"behind_no_room:\n"
	"	mov %edi, %eax\n"
	"	imul $3, %eax, %eax\n"
	"	ret\n"
	".size behind_no_room, . - behind_no_room\n"
	"	.zero 16, 0xcc\n");

extern int three_bytes(unsigned value);
extern int no_room(unsigned value);
extern int behind_no_room(unsigned value);

static long signals;

static void all_of_them(unsigned value)
{
	CHECK(three_bytes(value % 8) == (int)(value % 8) + 10);
	CHECK(no_room(value) == (int)value + 1 + (int)(value & 1));
	CHECK(behind_no_room(value) == (int)value * 3);
}

static void on_alarm(int signal)
{
	(void)signal;
	all_of_them(5);
	__atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED);
}

static void *work(void *unused)
{
	(void)unused;
	while (!stop)
		for (unsigned value = 0; value < 1000; value++)
			all_of_them(value);
	return NULL;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long threads = number(argc, argv, 1, 2);
	if (threads == 0) {
		/* A known number of calls. */
		for (unsigned value = 0; value < 8000; value++)
			all_of_them(value);
		return finish(MIX_START);
	}
	work_alarmed(threads, work, on_alarm);
	printf("signals %ld\n", signals);
	return finish(MIX_START);
}
