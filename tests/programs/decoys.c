/* A program that tries to make its tracer write to another file: a thread puts decoys over every low descriptor,
 * without end.
 *
 *     decoys [--wait] FILE
 *
 * FILE belongs to another user. Any user who may search its folder can get a handle to it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include "check.h"

enum { LOW = 3, HIGH = 24, DECOYS = 6, FAR = 200 };

static volatile int stop;
static int decoys[DECOYS];

PROBED long decoys_work(long value)
{
	return value * 7 + 1;
}

/* This number is out of reach of the decoys over the low ones. */
static int far_away(int descriptor)
{
	CHECK(descriptor >= 0);
	int moved = fcntl(descriptor, F_DUPFD, FAR);
	CHECK(moved >= FAR);
	close(descriptor);
	return moved;
}

/* A file with the same name that the tracer has just given to its own file. The file cannot be written. */
static void imitate(int descriptor)
{
	char path[64], link[128];
	snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
	ssize_t length = readlink(path, link, sizeof link - 1);
	if (length <= 0)
		return;
	link[length] = 0;
	char *end = strstr(link, " (deleted)");
	if (strncmp(link, "/memfd:nanoprobe", 16) != 0 || !end)
		return;
	*end = 0;
	int copy = memfd_create(link + 7, MFD_ALLOW_SEALING);
	if (copy < 0)
		return;
	fcntl(copy, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL);
	dup2(copy, descriptor);
	if (copy != descriptor)
		close(copy);
}

static void *put(void *unused)
{
	for (unsigned round = 0; !stop; round++) {
		for (int descriptor = LOW; descriptor < HIGH; descriptor++)
			close(descriptor);
		for (int repeat = 0; repeat < 40; repeat++)
			for (int descriptor = LOW; descriptor < LOW + 3; descriptor++) {
				unsigned which = (round + (unsigned)descriptor) % (DECOYS + 1);
				if (which == DECOYS)
					imitate(descriptor);
				else if (fcntl(descriptor, F_GETFD) >= 0)
					dup2(decoys[which], descriptor);
			}
	}
	return unused;
}

static void *work(void *unused)
{
	for (long value = 0; !stop; value++) {
		CHECK(decoys_work(value) == value * 7 + 1);
		if (value % 4096 == 0)
			usleep(100);
	}
	return unused;
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	CHECK(argc > 1);
	int both[2];
	decoys[0] = far_away(open(argv[1], O_PATH));
	decoys[1] = far_away(memfd_create("nanoprobe", MFD_ALLOW_SEALING));
	CHECK(pipe(both) == 0);
	decoys[2] = far_away(both[1]);
	decoys[3] = far_away(open("/dev/zero", O_RDWR));
	int sealed = memfd_create("nanoprobe-0123456789abcdef", MFD_ALLOW_SEALING);
	CHECK(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0);
	decoys[4] = far_away(sealed);
	decoys[5] = decoys[0];
	wait_for_go();
	pthread_t threads[2];
	CHECK(pthread_create(&threads[0], NULL, put, NULL) == 0);
	CHECK(pthread_create(&threads[1], NULL, work, NULL) == 0);
	printf("working\n");
	wait_for_line();
	stop = 1;
	for (int thread = 0; thread < 2; thread++)
		pthread_join(threads[thread], NULL);
	printf("OK\n");
	return 0;
}
