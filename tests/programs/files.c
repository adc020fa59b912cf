/* Opens files, and asks for the paths of their numbers: in the current folder, in another one, in named threads.
 *
 *     files FOLDER */
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "check.h"

PROBED int takes(int descriptor)
{
	DO_AFTER_CALL(descriptor);
	return descriptor;
}

static void *run(void *argument)
{
	CHECK(pthread_setname_np(pthread_self(), "the other one") == 0);
	CHECK(takes(*(int *)argument) == *(int *)argument);
	return NULL;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	CHECK(argc == 2 && chdir(argv[1]) == 0);
	int file = open("some file", O_RDWR | O_CREAT, 0600);
	CHECK(file >= 0 && takes(file) == file);
	int ends[2];
	CHECK(pipe(ends) == 0 && takes(ends[0]) == ends[0]);
	pthread_t other;
	CHECK(pthread_create(&other, NULL, run, &file) == 0 && pthread_join(other, NULL) == 0);
	CHECK(close(file) == 0 && takes(file) == file);
	CHECK(chdir("/") == 0 && takes(-1) == -1);
	return finish(MIX_START);
}
