/* Makes system calls.
 *
 * calls batches 1 WHICH   prints `batch <thread> <ns>` about every 4 ms, until its input ends. WHICH: 0 getppid() of
 *                         the C library, 1 the same by syscall(), where the code shows no number: ns a call. 2: a
 *                         server with 8 clients of another process: ns of the server's processor time a request
 * calls run CALLS         waits for a line, makes so many calls with work between them, and prints `ran <ns>`:
 *                         without a tracer 200,000 calls a second
 *
 * The time of calls is the time on the clock without the time in which the thread was ready to run and had no
 * processor: a tracer that stops the thread counts, and other work on the processor does not. */
#define _GNU_SOURCE
#include "batches.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <signal.h>

/* With the calls themselves, WORK_NS makes 200,000 calls a second. */
enum { CHUNK = 500, CLIENTS = 8, WORK_NS = 4600, KINDS = 6 };

static volatile int stop;
static int schedule = -1;

/* Nanoseconds in which this thread was ready and did not run; 0 if the kernel does not tell. */
static uint64_t delay(void)
{
	char text[96];
	ssize_t length = schedule < 0 ? 0 : pread(schedule, text, sizeof text - 1, 0);
	if (length <= 0)
		return 0;
	text[length] = 0;
	char *second = strchr(text, ' ');
	return second ? strtoull(second, NULL, 10) : 0;
}

static void *calls(void *which)
{
	pin(0);
	schedule = open("/proc/thread-self/schedstat", O_RDONLY);
	while (!stop) {
		uint64_t delayed = delay(), start = now(), end;
		uint64_t made = 0;
		do {
			if (which)
				for (int i = 0; i < CHUNK; i++)
					syscall(SYS_getppid);
			else
				for (int i = 0; i < CHUNK; i++)
					getppid();
			made += CHUNK;
			end = now();
		} while (end - start < BATCH_NS);
		delayed = delay() - delayed;
		if (!say_batch(0, (double)(end - start - delayed) / (double)made))
			_exit(1);
	}
	return NULL;
}

/* Computes: the work of a request, and between calls. */
static uint64_t work(const char *bytes, size_t length, int times)
{
	uint64_t hash = 14695981039346656037u;
	for (int i = 0; i < times; i++)
		for (size_t at = 0; at < length; at++)
			hash = (hash ^ (unsigned char)bytes[at]) * 1099511628211u;
	return hash;
}

static void client(const int *ends)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin(1);
	char request[64] = "GET key:000000012345";
	int epoll = epoll_create1(0);
	for (int i = 0; i < CLIENTS; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.fd = ends[i] };
		epoll_ctl(epoll, EPOLL_CTL_ADD, ends[i], &event);
		if (write(ends[i], request, sizeof request) < 0)
			_exit(1);
	}
	for (;;) {
		struct epoll_event ready[CLIENTS];
		int count = epoll_wait(epoll, ready, CLIENTS, -1);
		for (int i = 0; i < count; i++)
			if (read(ready[i].data.fd, request, sizeof request) <= 0 ||
			    write(ready[i].data.fd, request, sizeof request) < 0)
				_exit(0);
	}
}

static void *serve(void *epolled)
{
	pin(0);
	int epoll = (int)(long)epolled;
	while (!stop) {
		uint64_t start = now(), used = processor_time();
		uint64_t served = 0;
		do {
			struct epoll_event ready[CLIENTS];
			int count = epoll_wait(epoll, ready, CLIENTS, 100);
			for (int i = 0; i < count; i++) {
				char request[64];
				if (read(ready[i].data.fd, request, sizeof request) != sizeof request)
					_exit(1);
				uint64_t hash = work(request, sizeof request, 50);
				memcpy(request + 32, &hash, sizeof hash);
				if (write(ready[i].data.fd, request, sizeof request) != sizeof request)
					_exit(1);
				served++;
			}
		} while (now() - start < BATCH_NS || served == 0);
		used = processor_time() - used;
		if (!say_batch(0, (double)used / (double)served))
			_exit(1);
	}
	return NULL;
}

/* How often work() must go over `bytes` to take so long here. The fastest of several tries: others disturb. */
static int calibrate(const char *bytes, size_t length, uint64_t nanoseconds)
{
	enum { TIMES = 500 };
	uint64_t best = UINT64_MAX;
	for (int i = 0; i < 200; i++) {
		uint64_t start = now();
		uint64_t hash = work(bytes, length, TIMES), took = now() - start;
		if (hash != 0 && took < best)
			best = took;
	}
	return (int)(TIMES * nanoseconds / best);
}

static int run(long count)
{
	char line[64], page[64] = { 0 };
	int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
	pin(0);
	int times = calibrate(page, sizeof page, WORK_NS);
	schedule = open("/proc/thread-self/schedstat", O_RDONLY);
	if (zero < 0 || null < 0 || read(0, line, sizeof line) <= 0)
		return 1;
	uint64_t delayed = delay(), start = now();
	for (long i = 0; i < count; i++) {
		if (work(page, sizeof page, times) == 0)
			return 1;
		struct stat status;
		switch (i % KINDS) {
		case 0:
			getppid();
			break;
		case 1:
			if (read(zero, page, sizeof page) != sizeof page)
				return 1;
			break;
		case 2:
			if (write(null, "hello nanoprobe, a line of a log\n", 33) != 33)
				return 1;
			break;
		case 3:
			fstat(zero, &status);
			break;
		case 4:
			access("/etc/hostname", R_OK);
			break;
		case 5:
			lseek(null, 0, SEEK_SET);
			break;
		}
	}
	delayed = delay() - delayed;
	printf("ran %lu\n", (unsigned long)(now() - start - delayed));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	if (strcmp(argv[1], "run") == 0)
		return run(atol(argv[2]));
	long which = argc > 3 ? atol(argv[3]) : 0;
	pthread_t thread;
	void *argument = (void *)which;
	if (which == 2) {
		int ends[CLIENTS], epoll = epoll_create1(EPOLL_CLOEXEC);
		for (int i = 0; i < CLIENTS; i++) {
			int pair[2];
			if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
				return 1;
			struct epoll_event event = { .events = EPOLLIN, .data.fd = pair[0] };
			epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &event);
			ends[i] = pair[1];
		}
		if (fork() == 0)
			client(ends);
		argument = (void *)(long)epoll;
	}
	if (pthread_create(&thread, NULL, which == 2 ? serve : calls, argument) != 0)
		return 1;
	char byte;
	while (read(0, &byte, 1) == 1)
		;
	stop = 1;
	return 0;
}
