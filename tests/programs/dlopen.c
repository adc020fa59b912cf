/* Opens a library, calls into it, closes it, again and again.
 * dlopen PLUGIN [cycles] [calls a cycle] */
#include <dlfcn.h>
#include "check.h"

int main(int argc, char **argv)
{
	begin(&argc, argv);
	CHECK(argc > 1);
	long cycles = number(argc, argv, 2, 10), calls = number(argc, argv, 3, 1000);
	uint64_t checksum = MIX_START;
	for (long cycle = 0; cycle < cycles; cycle++) {
		void *library = dlopen(argv[1], cycle % 2 ? RTLD_NOW : RTLD_LAZY);
		if (library == NULL)
			printf("%s\n", dlerror());
		CHECK(library != NULL);
		long (*function)(long) = (long (*)(long))dlsym(library, "plugin_function");
		CHECK(function != NULL);
		long value = 0;
		for (long i = 0; i < calls; i++)
			value = function(i);
		CHECK(calls == 0 || value == (calls - 1) * 3 + 1);
		checksum = mix(checksum, (uint64_t)value);
		CHECK(dlclose(library) == 0);
	}
	printf("calls %ld\nconstructed %ld\n", cycles * calls, cycles);
	return finish(checksum);
}
