/* A text of 4 MiB, all of which the program has read. One function in it is called; a forked child calls it, and waits
 * for the end of the input.
 * Prints `by PID CALLS` for both. */
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

enum { PAGE = 4096, PAGES = 512 };

#define FILLED(name) ".globl " name "\n" name ": .fill 2 << 20, 1, 0xcc\n"

extern const unsigned char before_called[], after_called[];
uint64_t called(uint64_t value);

__asm__(".text\n.balign 4096\n" FILLED("before_called")
        ".globl called\n.type called, @function\n"
        "called: leaq 7(%rdi, %rdi, 2), %rax\n ret\n"
        ".size called, . - called\n"
        FILLED("after_called"));

static void call_and_say(void)
{
	char line[64];
	CHECK(called(5) == 22);
	int length = snprintf(line, sizeof line, "by %d 1\n", (int)getpid());
	CHECK(write(1, line, (size_t)length) == length);
}

static void read_all(const unsigned char *from)
{
	for (long page = 0; page < PAGES; page++)
		CHECK(((const volatile unsigned char *)from)[page * PAGE] == 0xcc);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	read_all(before_called);
	read_all(after_called);
	wait_for_go();
	call_and_say();
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		call_and_say();
		wait_for_line();
		_exit(7);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	return finish(mix(MIX_START, 1));
}
