/* Waiting for another process to sleep, without calls of read(2), which tests count. */
#ifndef ASLEEP_H
#define ASLEEP_H

#include <fcntl.h>
#include <sys/syscall.h>
#include "check.h"

static inline void wait_until_asleep(pid_t pid)
{
	char path[64], text[512];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	for (;;) {
		int file = open(path, O_RDONLY);
		CHECK(file >= 0);
		struct { char *base; size_t bytes; } part = { text, sizeof text - 1 };
		long got = syscall(SYS_readv, file, &part, 1);
		CHECK(got > 0);
		text[got] = 0;
		close(file);
		char *state = strrchr(text, ')');
		CHECK(state);
		if (state[2] == 'S')
			return;
		usleep(1000);
	}
}

#endif
