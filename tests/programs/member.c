/* A process that obeys its input line by line, and prints how often it has called a function: `by PID CALLS`.
 *
 *     call CALLS          calls
 *     with VALUE          calls once, with this value
 *     mark VALUE          calls another function with this value
 *     allocate CALLS      calls malloc and free
 *     fork CALLS          a child calls
 *     execute FILE CALLS  a child executes FILE, which calls and ends
 *
 * At the end of the input it ends. With arguments it obeys the arguments in place of its input. */
#include <sys/wait.h>
#include "check.h"

PROBED uint64_t called(uint64_t value)
{
	return value * 31 + 7;
}

PROBED uint64_t marked(uint64_t value)
{
	return value ^ 5;
}

static void say(long calls)
{
	/* One write for each line, so that lines of several processes do not mix. */
	char line[64];
	int length = snprintf(line, sizeof line, "by %d %ld\n", (int)getpid(), calls);
	CHECK(write(1, line, (size_t)length) == length);
}

static void call(long calls)
{
	uint64_t value = 1, right = 1;
	for (long i = 0; i < calls; i++) {
		value = called(value);
		right = right * 31 + 7;
	}
	CHECK(value == right);
	say(calls);
}

static void allocate(long calls)
{
	for (long i = 0; i < calls; i++) {
		/* The compiler must not leave the pair out. */
		void *volatile memory = malloc(24);
		CHECK(memory);
		free(memory);
	}
	say(calls);
}

static void wait_for(pid_t child)
{
	int status = 1;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void act(const char *line)
{
	char how[16], file[4096];
	long calls;
	if (sscanf(line, "execute %4095s %ld", file, &calls) == 2) {
		char text[32];
		snprintf(text, sizeof text, "%ld", calls);
		pid_t child = fork();
		if (child == 0) {
			execl(file, file, "call", text, NULL);
			_exit(1);
		}
		wait_for(child);
		return;
	}
	CHECK(sscanf(line, "%15s %ld", how, &calls) == 2);
	if (strcmp(how, "fork") == 0) {
		pid_t child = fork();
		if (child == 0) {
			call(calls);
			_exit(0);
		}
		wait_for(child);
	} else if (strcmp(how, "with") == 0) {
		CHECK(called((uint64_t)calls) == (uint64_t)calls * 31 + 7);
		say(1);
	} else if (strcmp(how, "mark") == 0) {
		CHECK(marked((uint64_t)calls) == ((uint64_t)calls ^ 5));
		say(0);
	} else if (strcmp(how, "allocate") == 0) {
		allocate(calls);
	} else {
		call(calls);
	}
}

int main(int argc, char **argv)
{
	static char line[8192];
	take_arguments(&argc, argv);
	if (argc >= 3) {
		snprintf(line, sizeof line, "%s %s", argv[1], argv[2]);
		act(line);
		return 0;
	}
	size_t length = 0;
	/* read(2), since stdio would allocate memory. */
	while (read(0, line + length, 1) == 1) {
		if (line[length] != '\n') {
			length = (length + 1) % (sizeof line - 1);
			continue;
		}
		line[length] = 0;
		length = 0;
		act(line);
	}
	return 0;
}
