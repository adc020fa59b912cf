/* A library for LD_PRELOAD: counts the calls of zlib's inflate, and appends `PID CALLS` to the file that the variable
 * INFLATES names when the process ends. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long calls;

int inflate(void *stream, int flush)
{
	static int (*next)(void *, int);
	if (!next)
		next = (int (*)(void *, int))dlsym(RTLD_NEXT, "inflate");
	__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	return next(stream, flush);
}

__attribute__((destructor)) static void at_end(void)
{
	const char *path = getenv("INFLATES");
	char line[64];
	if (!calls || !path)
		return;
	int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0666);
	int length = snprintf(line, sizeof line, "%d %ld\n", (int)getpid(), calls);
	if (file < 0 || write(file, line, (size_t)length) != length)
		abort();
	close(file);
}
