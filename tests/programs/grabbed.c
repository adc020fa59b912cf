/* A child that traces its parent as soon as a tracer's memory appears there. So attaching fails, and so does the
 * removal. With the argument `armed` it waits until the parent has a handler for SIGTRAP, which comes with the first
 * probes. One byte of input ends the child, another one the program. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static int shows_a_tracer(pid_t pid)
{
	char name[64], line[4096];
	int found = 0;
	snprintf(name, sizeof(name), "/proc/%d/maps", pid);
	FILE *maps = fopen(name, "r");
	while (maps && fgets(line, sizeof(line), maps))
		found |= strstr(line, "memfd:nanoprobe") != NULL;
	if (maps)
		fclose(maps);
	return found;
}

static int has_handler(pid_t pid)
{
	char name[64], line[4096];
	unsigned long long caught = 0;
	snprintf(name, sizeof(name), "/proc/%d/status", pid);
	FILE *status = fopen(name, "r");
	while (status && fgets(line, sizeof(line), status))
		sscanf(line, "SigCgt: %llx", &caught);
	if (status)
		fclose(status);
	return caught >> (SIGTRAP - 1) & 1;
}

int main(int argc, char **argv)
{
	char byte;
	int (*is_time)(pid_t) = argc > 1 && !strcmp(argv[1], "armed") ? has_handler : shows_a_tracer;
	pid_t parent = getpid();
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	pid_t child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (!is_time(parent))
			;
		while (ptrace(PTRACE_SEIZE, parent, NULL, NULL))
			;
		puts("grabbed");
		fflush(stdout);
		for (;;)
			pause();
	}
	puts("ready");
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		return 1;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	puts("released");
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		return 1;
	puts("fine");
	return 0;
}
