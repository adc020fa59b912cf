/* Executes itself when a tracer has mapped something: `execs N`, N times; -1: always. Then prints `ready`, and for
 * each line that it reads calls `work` a thousand times. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>

#define PROBED __attribute__((noipa))

long done;

PROBED void work(void)
{
	done++;
}

/* Whether a tracer has mapped something. The map is read at once, since parts that are read later may differ. */
static int is_traced(void)
{
	static char map[1 << 20];
	size_t length = 0;
	int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	for (;;) {
		ssize_t part = read(file, map + length, sizeof map - 1 - length);
		if (part <= 0)
			break;
		length += part;
	}
	close(file);
	map[length] = 0;
	return strstr(map, "/memfd:nanoprobe") != NULL;
}

int main(int argc, char **argv)
{
	char line[64], left[16];
	int times = argc > 1 ? atoi(argv[1]) : 0;

	setvbuf(stdin, NULL, _IONBF, 0);
	setvbuf(stdout, NULL, _IONBF, 0);
	printf("ready\n");
	while (times != 0) {
		if (!is_traced())
			continue;
		snprintf(left, sizeof left, "%d", times > 0 ? times - 1 : times);
		execl("/proc/self/exe", argv[0], left, (char *)NULL);
		return 3;
	}
	printf("stays\n");
	while (fgets(line, sizeof line, stdin)) {
		for (int i = 0; i < 1000; i++)
			work();
		printf("worked %ld\n", done);
	}
	return 0;
}
