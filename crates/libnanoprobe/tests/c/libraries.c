/* Return addresses are replaced while libraries come and go, among them one with an unwinder of its
 * own. argv[1]: a library that defines _Unwind_Backtrace and unw_backtrace, as libunwind does,
 * which say how many thunks they have found. */
#include <nanoprobe.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define FUNCTION __attribute__((noinline, noclone))
#define OPAQUE __asm__ volatile("" ::: "memory")

static __thread int (*walk)(void *lowest, void *highest);

FUNCTION int inner(int value)
{
	OPAQUE;
	if (walk)
		value += 1000 * walk(__builtin_frame_address(0), (char *)__builtin_frame_address(0) + 64);
	OPAQUE;
	return value + 1;
}

static void *calls(void *rounds)
{
	long sum = 0;
	for (long round = 0; round < (long)rounds; round++)
		sum += inner((int)round);
	return (void *)sum;
}

static volatile int hits_in_library;

static int before(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	hits_in_library++;
	return 0;
}

/* When a library is unloaded, its probe is gone, and the next call for the probe says so. The library may be
 * loaded again. */
static int unloaded(const char *path)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .symbol = "plain_function", .pre_handler = before };
	int wrong = 0;
	for (int round = 0; round < 20; round++) {
		void *library = dlopen(path, RTLD_NOW);
		int (*plain)(int) = (int (*)(int))dlsym(library, "plain_function");
		probe.addr = NULL;
		wrong += np_register_probe(&probe) != 0;
		wrong += plain(round) != round + 3 || np_probe_hits(&probe) != 1;
		dlclose(library);
		wrong += np_probe_tactic(&probe) != NP_TACTIC_NONE;
		if (round & 1) {
			/* The library is mapped where it was before, and has no patches. */
			library = dlopen(path, RTLD_NOW);
			plain = (int (*)(int))dlsym(library, "plain_function");
			wrong += plain(round) != round + 3 || np_probe_hits(&probe) != 1;
			dlclose(library);
		}
		wrong += np_enable_probe(&probe) != NP_ERROR_UNLOADED;
		wrong += np_unregister_probe(&probe) != NP_ERROR_UNLOADED;
		wrong += np_unregister_probe(&probe) != NP_ERROR_NOT_REGISTERED;
	}
	return wrong + (hits_in_library != 20);
}

int main(int count, char **arguments)
{
	if (count > 1 && unloaded(arguments[1]))
		return 3;
	static struct np_retprobe probe = { { NP_SIZE(struct np_retprobe), .symbol = "inner" },
					    .form = NP_RETPROBE_ADDRESS };
	pthread_t thread;
	void *sum;
	int error = count < 2 ? -1 : np_register_retprobe(&probe);
	if (error) {
		fprintf(stderr, "%s: %s\n", np_strerror(error), np_last_error());
		return 1;
	}
	pthread_create(&thread, NULL, calls, (void *)200000);
	inner(0);
	for (int round = 0; round < 20; round++) {
		void *library = dlopen(arguments[1], RTLD_NOW);
		walk = library ? (int (*)(void *, void *))dlsym(library, "unw_backtrace") : NULL;
		if (!walk) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		/* The library's unwinder finds real addresses and no thunk, and this call's return is not seen. */
		if (inner(1) != 2)
			return 2;
		walk = NULL;
		inner(2);
		dlclose(library);
		inner(3);
	}
	pthread_join(thread, &sum);
	unsigned long hits = np_probe_hits(&probe.probe), missed = np_retprobe_nmissed(&probe);
	unsigned long abandoned = np_retprobe_abandoned(&probe);
	/* Of 200061 calls only those are not seen that an unwinder may have met: 20 calls, and the calls that were active
	 * in the thread at that time. */
	printf("%s %s\n", hits + missed + abandoned >= 200061 - 2 && hits >= 200061 - 41 ? "seen" : "LOST",
	       (long)sum == 200000L * 200001 / 2 ? "right" : "WRONG");
	if (hits < 200061 - 41)
		printf("%lu %lu %lu\n", hits, missed, abandoned);
	return np_unregister_retprobe(&probe) != 0;
}
