/* Reads and writes regular files, each a known number of times, beside pipes, sockets and devices.
 * disk [threads] [rounds]
 * Prints for each file and direction `start FILE.DIRECTION calls`, `asked`, `moved` (bytes) and `failed`. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "check.h"

enum { READ, WRITE, DIRECTIONS, DATA = 0, COPY, FILES = 2, PIECE = 100 };

static const char *const names[FILES] = { "data", "copy" };
static long counts[FILES][DIRECTIONS][4];
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static long rounds;
static char folder[] = "/tmp/nanoprobe-disk-XXXXXX";

/* One call, as the program sees it. */
static void note(int file, int direction, long asked, long result)
{
	pthread_mutex_lock(&counting);
	long *all = counts[file][direction];
	all[0]++;
	all[1] += asked;
	all[2] += result > 0 ? result : 0;
	all[3] += result < 0;
	pthread_mutex_unlock(&counting);
}

static int opened(const char *name, int flags)
{
	char path[sizeof folder + 32];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	int fd = open(path, flags, 0600);
	CHECK(fd >= 0);
	return fd;
}

static void read_and_write(int data, int copy)
{
	char bytes[PIECE], more[PIECE];
	struct iovec parts[3] = { { bytes, 30 }, { more, 20 }, { more + 20, 7 } };
	note(DATA, READ, PIECE, pread(data, bytes, PIECE, 0));
	note(DATA, READ, PIECE, pread(data, bytes, PIECE, 4096 - 40)); /* short */
	note(DATA, READ, 57, preadv(data, parts, 3, 10));
	note(COPY, WRITE, 50, pwrite(copy, bytes, 50, 0));
	note(COPY, WRITE, 57, pwritev(copy, parts, 3, 50));
	errno = 0;
	long failed = pwrite(data, bytes, 9, 0); /* not open for writing */
	CHECK(failed == -1 && errno == EBADF);
	note(DATA, WRITE, 9, failed);
	/* Not files of a disk. */
	int ends[2];
	char byte = 1;
	CHECK(pipe(ends) == 0);
	CHECK(write(ends[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1);
	close(ends[0]);
	close(ends[1]);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CHECK(write(ends[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1);
	close(ends[0]);
	close(ends[1]);
	CHECK(read(-1, &byte, 1) == -1);
}

static void *run(void *unused)
{
	(void)unused;
	int data = opened("data", O_RDONLY), copy = opened("copy", O_RDWR), null = open("/dev/null", O_RDWR);
	char bytes[PIECE] = "";
	struct iovec parts[2] = { { bytes, 3 }, { bytes + 3, 4 } };
	for (long round = 0; round < rounds; round++)
		read_and_write(data, copy);
	note(DATA, READ, PIECE, read(data, bytes, PIECE));
	note(DATA, READ, 7, readv(data, parts, 2));
	note(COPY, WRITE, 7, writev(copy, parts, 2));
	note(COPY, WRITE, PIECE, write(copy, bytes, PIECE));
	note(COPY, WRITE, 0, fsync(copy));
	note(COPY, WRITE, 0, fdatasync(copy));
	CHECK(write(null, bytes, PIECE) == PIECE && read(null, bytes, PIECE) == 0);
	/* One call, two files. */
	long sent = sendfile(copy, data, NULL, 500);
	note(DATA, READ, 500, sent);
	note(COPY, WRITE, 500, sent);
	loff_t from = 0, to = 0;
	sent = copy_file_range(data, &from, copy, &to, 600, 0);
	note(DATA, READ, 600, sent);
	note(COPY, WRITE, 600, sent);
	close(data);
	close(copy);
	close(null);
	return NULL;
}

int main(int argc, char **argv)
{
	enum { THREADS_MAX = 16 };
	pthread_t ids[THREADS_MAX];
	take_arguments(&argc, argv);
	long threads = argc > 1 ? atol(argv[1]) : 1;
	rounds = argc > 2 ? atol(argv[2]) : 1;
	CHECK(threads > 0 && threads <= THREADS_MAX);
	wait_for_go();
	CHECK(mkdtemp(folder));
	char bytes[4096] = "";
	int data = opened("data", O_RDWR | O_CREAT);
	note(DATA, WRITE, sizeof bytes, write(data, bytes, sizeof bytes));
	close(data);
	close(opened("copy", O_RDWR | O_CREAT));
	for (long index = 0; index < threads; index++)
		CHECK(pthread_create(&ids[index], NULL, run, NULL) == 0);
	for (long index = 0; index < threads; index++)
		pthread_join(ids[index], NULL);
	for (int file = 0; file < FILES; file++) {
		char path[sizeof folder + 32];
		snprintf(path, sizeof path, "%s/%s", folder, names[file]);
		unlink(path);
	}
	rmdir(folder);
	for (int file = 0; file < FILES; file++)
		for (int direction = 0; direction < DIRECTIONS; direction++) {
			static const char *const fields[4] = { "start", "asked", "moved", "failed" };
			for (int field = 0; field < 4; field++)
				printf("%s %s.%s %ld\n", fields[field], names[file], direction == READ ? "R" : "W",
				       counts[file][direction][field]);
		}
	printf("OK\n");
	return 0;
}
