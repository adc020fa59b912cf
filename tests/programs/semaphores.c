/* The word of a semaphore after it was raised. Each mode waits for lines, and prints the word. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include "check.h"

static long (*guarded_call)(long);
static volatile unsigned short *word;

static void *open_library(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	if (library == NULL)
		printf("%s\n", dlerror());
	CHECK(library != NULL);
	guarded_call = (long (*)(long))dlsym(library, "guarded_call");
	word = dlsym(library, "guarded_word");
	CHECK(guarded_call != NULL && word != NULL);
	return library;
}

static long call(long calls)
{
	long seen = 0;
	for (long i = 0; i < calls; i++)
		seen += guarded_call(i);
	return seen;
}

static volatile int has_line;

static void *wait_in_thread(void *nothing)
{
	wait_for_line();
	has_line = 1;
	return nothing;
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	CHECK(argc > 2);
	void *library = open_library(argv[2]);
	printf("word %p\n", (void *)word);
	wait_for_go();
	if (strcmp(argv[1], "work") == 0) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, wait_in_thread, NULL) == 0);
		while (!has_line)
			call(1000);
		pthread_join(thread, NULL);
	} else if (strcmp(argv[1], "exec") == 0) {
		long calls = number(argc, argv, 3, 100);
		printf("seen %ld semaphore %d\n", call(calls), *word);
		if (calls > 0) {
			fflush(stdout);
			execl("/proc/self/exe", argv[0], "exec", argv[2], "0", (char *)NULL);
			CHECK(!"exec");
		}
		wait_for_line();
		printf("after %ld\n", call(10));
	} else {
		CHECK(argc > 3);
		printf("seen %ld\nworked\n", call(number(argc, argv, 4, 100)));
		wait_for_line();
		/* Other memory is now mapped at this address, in which no tracer may count. */
		const volatile unsigned short *before = word;
		CHECK(dlclose(library) == 0);
		if (strcmp(argv[3], "pages") == 0) {
			char *page = (char *)((uintptr_t)before & -4096UL);
			CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page);
			for (int i = 0; i < 2048; i++)
				((unsigned short *)page)[i] = 7;
		} else {
			open_library(argv[3]);
			CHECK(word == before);
		}
		printf("replaced\n");
		wait_for_line();
		CHECK(*before == 7);
		if (strcmp(argv[3], "pages") == 0)
			for (int i = 0; i < 2048; i++)
				CHECK(((unsigned short *)((uintptr_t)before & -4096UL))[i] == 7);
		printf("word is 7\n");
		return finish(MIX_START);
	}
	printf("semaphore %d\n", *word);
	return finish(MIX_START);
}
