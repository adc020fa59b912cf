/* Threads that wait in calls while the first one makes others: one gets what it waits for, two are ended. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ends[2], never[2];
static volatile pid_t waiting;

/* Returns when the thread that has begun sleeps in this call. */
static void await(long call)
{
	char path[64], text[64], wanted[16];
	while (!waiting)
		;
	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiting);
	snprintf(wanted, sizeof wanted, "%ld ", call);
	int fd;
	ssize_t bytes;
	do {
		fd = open(path, O_RDONLY);
		bytes = pread(fd, text, sizeof text - 1, 0);
		if (fd < 0 || bytes < 0) {
			perror(path);
			exit(1);
		}
		text[bytes] = 0;
		close(fd);
	} while (strncmp(text, wanted, strlen(wanted)) != 0);
	waiting = 0;
}

static void *reads(void *unused)
{
	char text[9];
	waiting = syscall(SYS_gettid);
	return read(ends[0], text, sizeof text) == 5 ? unused : NULL;
}

static void *polls(void *unused)
{
	struct pollfd polled = { never[0], POLLIN, 0 };
	waiting = syscall(SYS_gettid);
	syscall(SYS_poll, &polled, 1, -1);
	return unused;
}

static void *pauses(void *unused)
{
	waiting = syscall(SYS_gettid);
	syscall(SYS_pause);
	return unused;
}

static pthread_t begin(void *(*what)(void *), long call)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, what, NULL) != 0)
		exit(1);
	await(call);
	getppid();
	return thread;
}

int main(void)
{
	if (pipe(ends) != 0 || pipe(never) != 0)
		return 1;
	getppid();
	pthread_t reader = begin(reads, SYS_read);
	begin(polls, SYS_poll);
	begin(pauses, SYS_pause);
	if (write(ends[1], "hello", 5) != 5)
		return 1;
	pthread_join(reader, NULL);
	getppid();
	exit(5);
}
