/* A thread that loads and unloads the existing libraries all the time. It ends with its input. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int stop;
static long loads;

static void *load(void *nothing)
{
	static const char *const names[] = {"libz.so.1", "liblzma.so.5", "libbz2.so.1.0", "libexpat.so.1",
					    "libffi.so.8", "libcrypt.so.1", "libm.so.6", "libresolv.so.2"};
	for (long i = 0; !stop; i++) {
		void *library = dlopen(names[i % 8], RTLD_NOW);
		if (library != NULL && dlclose(library) == 0)
			loads++;
	}
	return nothing;
}

int main(void)
{
	pthread_t thread;
	char byte;
	if (pthread_create(&thread, NULL, load, NULL) != 0)
		return 1;
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) < 0)
		;
	stop = 1;
	if (pthread_join(thread, NULL) != 0)
		return 1;
	printf("loads %ld\n", loads);
	return 0;
}
