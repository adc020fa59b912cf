/* A library for LD_PRELOAD: counts the calls of zlib's inflate, and of recv. When the process ends it appends
 * `PID CALLS` to the file that the variable INFLATES or RECEIVES names. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static long inflates, receives;

int inflate(void *stream, int flush)
{
	static int (*next)(void *, int);
	if (!next)
		next = (int (*)(void *, int))dlsym(RTLD_NEXT, "inflate");
	__atomic_fetch_add(&inflates, 1, __ATOMIC_RELAXED);
	return next(stream, flush);
}

ssize_t recv(int socket, void *bytes, size_t length, int flags)
{
	static ssize_t (*next)(int, void *, size_t, int);
	if (!next)
		next = (ssize_t(*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
	__atomic_fetch_add(&receives, 1, __ATOMIC_RELAXED);
	return next(socket, bytes, length, flags);
}

static void say(const char *variable, long calls)
{
	const char *path = getenv(variable);
	char line[64];
	if (!calls || !path)
		return;
	int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0666);
	int length = snprintf(line, sizeof line, "%d %ld\n", (int)getpid(), calls);
	if (file < 0 || write(file, line, (size_t)length) != length)
		abort();
	close(file);
}

__attribute__((destructor)) static void at_end(void)
{
	say("INFLATES", inflates);
	say("RECEIVES", receives);
}
