/* Two threads call a function on which another program puts breakpoints, until a line comes:
 * uprobed, or uprobed LIBRARY, where the function is that of this file as a library. */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>

PROBED long uprobed_function(long value)
{
	__asm__ volatile("" : "+r"(value));
	return value * 7 + 1;
}

PROBED long uprobed_other(long value)
{
	__asm__ volatile("" : "+r"(value));
	return value * 5 + 2;
}

static long (*function)(long) = uprobed_function;
static int over;
static long calls[2];

static void *work(void *number)
{
	long *called = &calls[(long)number], value = 0;
	while (*called < 1000 || !__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		CHECK(function(value) == value * 7 + 1);
		CHECK(uprobed_other(value) == value * 5 + 2);
		value = (value + 3) % 1000;
		++*called;
	}
	return NULL;
}

/* The offset of the function in the program's file, and its address. */
static void tell_place(void)
{
	unsigned long address = (unsigned long)function, start, end, offset;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	/* It must not be in a root of its own. */
	if (!maps)
		return;
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && start <= address && address < end)
			printf("place %#lx %#lx\n", address - start + offset, address);
	fclose(maps);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	if (argc > 1) {
		void *library = dlopen(argv[1], RTLD_NOW);
		CHECK(library);
		*(void **)&function = dlsym(library, "uprobed_function");
		CHECK(function && function != uprobed_function);
	}
	tell_place();
	wait_for_go();
	pthread_t threads[2];
	for (long thread = 0; thread < 2; thread++)
		CHECK(pthread_create(&threads[thread], NULL, work, (void *)thread) == 0);
	wait_for_line();
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	for (int thread = 0; thread < 2; thread++)
		pthread_join(threads[thread], NULL);
	printf("calls %ld\nOK\n", calls[0] + calls[1]);
	return 0;
}
