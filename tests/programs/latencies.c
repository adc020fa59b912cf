/* Functions that take a known time; they cover each way out of a function. The program prints the time of each call, by
 * clock reads around it and by clock reads within it.
 *
 *     latencies [COUNT [NS]]: NS is the time of the functions that spin */
#include <time.h>
#include "check.h"

enum { NAPS = 2000000, SPINS = 400000 };

/* How long the last call took, by clock reads within the call. */
static long inside;

static long now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000 + time.tv_nsec;
}

PROBED long spinner(long ns)
{
	long start = now();
	do
		inside = now() - start;
	while (inside < ns);
	return ns;
}

PROBED long sleeper(long ns)
{
	struct timespec time = {0, ns};
	long start = now();
	nanosleep(&time, NULL);
	inside = now() - start;
	return ns;
}

/* Left by `ret`. */
PROBED long spins(long ns)
{
	long result = spinner(ns);
	DO_AFTER_CALL(result);
	return result + 1;
}

PROBED long sleeps(long ns)
{
	long result = sleeper(ns);
	DO_AFTER_CALL(result);
	return result + 1;
}

/* Left by a jump to the function that spends the time. */
PROBED long hands_over(long ns)
{
	return sleeper(ns + 1);
}

/* Left by a jump, or by a return. */
PROBED long sometimes(long ns)
{
	if (ns % 2)
		return spinner(ns);
	long result = spinner(ns);
	DO_AFTER_CALL(result);
	return result + 1;
}

struct measured {
	const char *name;
	long (*function)(long);
	long ns;
};
static const struct measured functions[] = {
	{"spins", spins, SPINS}, {"sleeps", sleeps, NAPS}, {"hands_over", hands_over, NAPS}, {"sometimes", sometimes, SPINS}};
enum { FUNCTIONS = sizeof(functions) / sizeof(functions[0]), CALLS_MAX = 1000 };

/* The offset of a function in the program's file. */
static unsigned long offset_of(const void *function)
{
	unsigned long start, end, offset, found = 0;
	char line[4096];
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && start <= (unsigned long)function &&
		    (unsigned long)function < end)
			found = (unsigned long)function - start + offset;
	if (maps)
		fclose(maps);
	return found;
}

int main(int argc, char **argv)
{
	static long took[FUNCTIONS][CALLS_MAX], least[FUNCTIONS][CALLS_MAX];
	take_arguments(&argc, argv);
	for (int i = 0; i < FUNCTIONS; i++)
		printf("offset %s %lx\n", functions[i].name, offset_of((const void *)functions[i].function));
	wait_for_go();
	long calls = number(argc, argv, 1, 40), spins_ns = number(argc, argv, 2, SPINS);
	CHECK(calls <= CALLS_MAX);
	for (long call = 0; call < calls; call++)
		for (int i = 0; i < FUNCTIONS; i++) {
			long ns = (functions[i].ns == SPINS ? spins_ns : functions[i].ns) + call % 2, start = now();
			long result = functions[i].function(ns);
			took[i][call] = now() - start;
			least[i][call] = inside;
			CHECK(result == ns + 1 || result == ns);
		}
	for (long call = 0; call < calls; call++)
		for (int i = 0; i < FUNCTIONS; i++)
			printf("took %s %ld\ninside %s %ld\n", functions[i].name, took[i][call], functions[i].name, least[i][call]);
	return finish((uint64_t)calls);
}
