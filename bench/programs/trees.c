/* Processes that fork and execute, for the experiment `trees`.
 *
 * trees count               calls bench_allocate() once, and forks three children that call it 1,000 times each; prints
 *                           `by <pid> <calls>` for each process
 * trees fork TIMES MIB      writes MIB MiB of memory, then so often: a child is forked, calls bench_allocate() and
 *                           ends, and is waited for. Prints `ns <fork> <all>` for each
 * trees execute TIMES FILE  so often: a child executes FILE, and is waited for; a `%d` in FILE stands for the number.
 *                           Prints `ns <all>` for each
 * trees hit TIMES CALLS     so often: calls bench_allocate(), in this process and in a child. Prints
 *                           `ns <of a call here> <of a call in the child>`
 * trees wait                waits until its input ends
 * trees                     calls bench_allocate() once */
#define _GNU_SOURCE
#include "batches.h"
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

extern char **environ;

/* It begins with push, as most functions do: the kernel emulates that, and must step most other instructions. */
void *bench_allocate(size_t bytes);
__asm__(".text\n.p2align 6\n.globl bench_allocate\n.type bench_allocate, @function\n"
        "bench_allocate:\n	pushq %rbp\n	movq %rsp, %rbp\n	leaq 1(%rdi), %rax\n	popq %rbp\n	ret\n"
        ".size bench_allocate, . - bench_allocate\n.p2align 6\n");

/* No stdio here: it allocates, and a child would have a copy of its buffer. */
static void say(const char *word, uint64_t first, uint64_t second)
{
	char line[96];
	int length = snprintf(line, sizeof line, "%s %llu %llu\n", word, (unsigned long long)first,
	                      (unsigned long long)second);
	if (write(1, line, (size_t)length) != length)
		_exit(3);
}

static void call(long times)
{
	for (long i = 0; i < times; i++)
		bench_allocate((size_t)i);
}

/* A child ends with status 0, or this process does not. */
static void wait_for(pid_t child)
{
	int status;
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		_exit(4);
}

static void count(void)
{
	pid_t children[3];
	call(1);
	say("by", (uint64_t)getpid(), 1);
	for (int i = 0; i < 3; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			call(1000);
			say("by", (uint64_t)getpid(), 1000);
			_exit(0);
		}
	}
	for (int i = 0; i < 3; i++)
		wait_for(children[i]);
}

static void forks(long times, size_t mib)
{
	if (mib > 0) {
		char *memory = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (memory == MAP_FAILED)
			_exit(5);
		/* Small pages, as most programs have: a fork copies an entry for each. */
		madvise(memory, mib << 20, MADV_NOHUGEPAGE);
		memset(memory, 1, mib << 20);
	}
	for (long i = 0; i < times; i++) {
		uint64_t start = now();
		pid_t child = fork();
		if (child == 0) {
			call(1);
			_exit(0);
		}
		uint64_t forked = now();
		wait_for(child);
		say("ns", forked - start, now() - start);
	}
}

static void execute(long times, const char *file)
{
	for (long i = 0; i < times; i++) {
		char path[512];
		const char *mark = strstr(file, "%d");
		if (mark != NULL)
			snprintf(path, sizeof path, "%.*s%ld%s", (int)(mark - file), file, i, mark + 2);
		else
			snprintf(path, sizeof path, "%s", file);
		char *arguments[] = { path, NULL };
		pid_t child = -1;
		uint64_t start = now();
		if (posix_spawn(&child, path, NULL, NULL, arguments, environ) != 0)
			_exit(6);
		wait_for(child);
		uint64_t took = now() - start;
		say("ns", took, took);
	}
}

/* Picoseconds of a call. */
static uint64_t of_a_call(long calls)
{
	call(calls);
	uint64_t start = processor_time();
	call(calls);
	return (processor_time() - start) * 1000 / (uint64_t)calls;
}

static void hit(long times, long calls)
{
	for (long i = 0; i < times; i++) {
		int ends[2];
		uint64_t there = 0, here = of_a_call(calls);
		if (pipe(ends) != 0)
			_exit(7);
		pid_t child = fork();
		if (child == 0) {
			there = of_a_call(calls);
			_exit(write(ends[1], &there, sizeof there) != sizeof there);
		}
		if (read(ends[0], &there, sizeof there) != sizeof there)
			_exit(8);
		wait_for(child);
		close(ends[0]);
		close(ends[1]);
		say("ps", here, there);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	long times = argc > 2 ? atol(argv[2]) : 1;
	char byte;
	if (strcmp(what, "count") == 0)
		count();
	else if (strcmp(what, "fork") == 0 && argc > 3)
		forks(times, (size_t)atol(argv[3]));
	else if (strcmp(what, "execute") == 0 && argc > 3)
		execute(times, argv[3]);
	else if (strcmp(what, "hit") == 0 && argc > 3)
		hit(times, atol(argv[3]));
	else if (strcmp(what, "wait") == 0)
		while (read(0, &byte, 1) == 1)
			;
	else
		call(1);
	return 0;
}
