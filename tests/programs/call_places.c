/* Three functions with a system call each: two whose code shows the number, one that is given it.
 * Prints `name address` of each function, and, after its calls, `getppid number`. */
#include <sys/syscall.h>
#include "check.h"

#define STRING(number) #number
#define NUMBER(number) STRING(number)
#define BODY(load) load "\n\tsyscall\n\tcmp $0, %rax\n\tjl 1f\n\tret\n1:\tmov $-1, %rax\n\tret\n"
#define FUNCTION(name, load) \
	long name(long number); \
	__asm__(".text\n.balign 64\n.globl " #name "\n.type " #name ", @function\n" #name ":\n" BODY(load) \
		".size " #name ", . - " #name "\n.balign 64\n")

FUNCTION(ask_parent, "mov $" NUMBER(__NR_getppid) ", %eax");
FUNCTION(ask_user, "mov $" NUMBER(__NR_getuid) ", %eax");
FUNCTION(ask_any, "mov %edi, %eax");

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	printf("ask_parent %ld\nask_user %ld\nask_any %ld\n", (long)ask_parent, (long)ask_user, (long)ask_any);
	wait_for_go();
	long parents = 0;
	for (int round = 0; round < 1000; round++) {
		CHECK(ask_parent(0) > 0);
		CHECK(ask_user(0) >= 0);
		int asks_parent = round % 4 == 0;
		CHECK(ask_any(asks_parent ? __NR_getppid : __NR_getuid) >= 0);
		parents += 1 + asks_parent;
	}
	printf("getppid %ld\n", parents);
	return finish(mix(MIX_START, (uint64_t)parents));
}
