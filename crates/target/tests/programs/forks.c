/* Forks a child that lives until it is killed, and ends itself. A line of input begins each step. */
#include <stdio.h>
#include <unistd.h>

static void wait_for_line(void)
{
	char line[16];
	if (!fgets(line, sizeof line, stdin))
		_exit(1);
}

int main(void)
{
	puts("ready");
	fflush(stdout);
	wait_for_line();
	pid_t child = fork();
	if (child == 0)
		for (;;)
			pause();
	printf("%d\n", child);
	fflush(stdout);
	wait_for_line();
	return 0;
}
