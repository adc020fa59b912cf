/* Code is loaded and unloaded, and the library must know the current code. argv[1], argv[2]: two files of the same
 * library (loaded.c). */
#define _GNU_SOURCE
#include <nanoprobe.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ONE(number)                                                                                                        \
	__attribute__((noinline, noclone, noipa)) int function##number(int value)                                          \
	{                                                                                                                  \
		__asm__ volatile("" ::: "memory");                                                                         \
		return value * 3 + number;                                                                                 \
	}
#define TEN(of, number)                                                                                                    \
	of(number##0) of(number##1) of(number##2) of(number##3) of(number##4) of(number##5) of(number##6) of(number##7)    \
		of(number##8) of(number##9)
#define ALL(of)                                                                                                            \
	TEN(of, 10) TEN(of, 11) TEN(of, 12) TEN(of, 13) TEN(of, 14) TEN(of, 15) TEN(of, 16) TEN(of, 17) TEN(of, 18) TEN(of, 19)
ALL(ONE)
#define ADDRESS(number) (void *)function##number,
#define NAME(number) "function" #number,
static void *const functions[] = { ALL(ADDRESS) };
static const char *const names[] = { ALL(NAME) };
enum { COUNT = sizeof(functions) / sizeof(functions[0]) };

static void check(int error)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s\n", np_strerror(error), np_last_error());
	exit(1);
}

static int hits;

static int before(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	__atomic_fetch_add(&hits, 1, __ATOMIC_RELAXED);
	return 0;
}

/* A registration does not read the program's files again: the files that are opened meanwhile are counted. */
static void reads_little(void)
{
	static struct np_probe probes[COUNT];
	struct np_probe opens = { NP_SIZE(struct np_probe), .symbol = "libc:open64", .pre_handler = before };
	struct np_probe first = { NP_SIZE(struct np_probe), .symbol = "main", .pre_handler = before };
	check(np_register_probe(&opens));
	check(np_register_probe(&first));
	for (int by_symbol = 0; by_symbol < 2; by_symbol++) {
		uint64_t opened = np_probe_hits(&opens);
		for (int index = 0; index < COUNT; index++) {
			probes[index] = (struct np_probe){ NP_SIZE(struct np_probe), .pre_handler = before };
			if (by_symbol)
				probes[index].symbol = names[index];
			else
				probes[index].addr = functions[index];
			check(np_register_probe(&probes[index]));
		}
		opened = np_probe_hits(&opens) - opened;
		int right = 0;
		for (int index = 0; index < COUNT; index++)
			right += ((int (*)(int))functions[index])(5) == 15 + 100 + index && np_probe_hits(&probes[index]) == 1;
		printf("by %s: %d right, %s\n", by_symbol ? "symbol" : "address", right, opened <= 2 ? "few" : "MANY");
		for (int index = 0; index < COUNT; index++)
			check(np_unregister_probe(&probes[index]));
	}
	check(np_unregister_probe(&first));
	check(np_unregister_probe(&opens));
}

/* Several libraries are loaded at one place, one after the other. */
static void libraries(char *const paths[2])
{
	int wrong = 0, moved = 0;
	void *last = NULL;
	for (int round = 0; round < 40; round++) {
		void *library = dlopen(paths[round & 1], RTLD_NOW);
		int (*function)(int) = (int (*)(int))dlsym(library, "function");
		struct np_probe probe = { NP_SIZE(struct np_probe), .pre_handler = before };
		if (round & 2)
			probe.symbol = "function";
		else
			probe.addr = (void *)function;
		moved += last && last != (void *)function;
		last = (void *)function;
		check(np_register_probe(&probe));
		int plain = function(round);
		wrong += np_probe_hits(&probe) != 1;
		dlclose(library);
		struct np_probe late = { NP_SIZE(struct np_probe), .addr = (void *)function };
		wrong += np_register_probe(&late) != NP_ERROR_NOT_CODE;
		wrong += np_unregister_probe(&probe) != NP_ERROR_UNLOADED;
		/* The same values without a probe. */
		library = dlopen(paths[round & 1], RTLD_NOW);
		function = (int (*)(int))dlsym(library, "function");
		wrong += function(round) != plain;
		dlclose(library);
	}
	printf("libraries: %d wrong, %s\n", wrong, moved < 5 ? "at one place" : "MOVED");
}

/* The program maps a library's file itself, so the linker does not know of it. */
static void by_hand(char *const paths[2])
{
	struct link_map *map;
	struct stat state;
	void *library = dlopen(paths[0], RTLD_NOW);
	if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map) || stat(paths[0], &state))
		abort();
	size_t offset = (size_t)((char *)dlsym(library, "function") - (char *)map->l_addr);
	dlclose(library);
	size_t bytes = ((size_t)state.st_size + 4095) & ~(size_t)4095;
	int wrong = 0;
	char *place = NULL;
	for (int round = 0; round < 20; round++) {
		int file = open(paths[round & 1], O_RDONLY);
		place = mmap(place, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | (place ? MAP_FIXED : 0), file, 0);
		close(file);
		if (place == MAP_FAILED)
			abort();
		int (*function)(int) = (int (*)(int))(place + offset);
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)function, .pre_handler = before };
		check(np_register_probe(&probe));
		function(round);
		wrong += np_probe_hits(&probe) != 1;
		/* After an unload, nothing or something else is mapped at the function's address. */
		struct np_probe late = { NP_SIZE(struct np_probe), .addr = (void *)function };
		if (round % 3 == 0) {
			munmap(place, bytes);
			wrong += np_register_probe(&late) != NP_ERROR_NOT_CODE;
		} else if (round % 3 == 1) {
			mmap(place, bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0);
			wrong += np_register_probe(&late) != NP_ERROR_NOT_CODE;
		} else {
			file = open(paths[~round & 1], O_RDONLY);
			mmap(place, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0);
			close(file);
			late.pre_handler = before;
			wrong += np_register_probe(&late) != 0;
			function(round);
			wrong += np_probe_hits(&late) != 1 || np_unregister_probe(&late) != 0;
		}
		wrong += np_unregister_probe(&probe) != NP_ERROR_UNLOADED;
	}
	printf("by hand: %d wrong\n", wrong);
}

static char *const *shared;
static int stop;

static void *uses(void *calls)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		void *library = dlopen(shared[0], RTLD_NOW);
		int (*function)(int) = library ? (int (*)(int))dlsym(library, "function") : NULL;
		if (!function)
			abort();
		int right = function(1);
		for (int round = 0; round < 100; round++, ++*(long *)calls)
			if (function(1) != right)
				abort();
		dlclose(library);
	}
	return NULL;
}

static int have_called(const long calls[3])
{
	return __atomic_load_n(&calls[0], __ATOMIC_RELAXED) && __atomic_load_n(&calls[1], __ATOMIC_RELAXED) &&
	       __atomic_load_n(&calls[2], __ATOMIC_RELAXED);
}

/* Several threads load and unload one library, in any order, while it is probed. This goes on until every thread
 * has run. */
static void in_use(char *const paths[2])
{
	pthread_t threads[3];
	long calls[3] = { 0 };
	int wrong = 0;
	shared = paths;
	for (int index = 0; index < 3; index++)
		pthread_create(&threads[index], NULL, uses, &calls[index]);
	for (int round = 0; round < 150 || (round < 100000 && !have_called(calls)); round++) {
		void *library = dlopen(paths[0], RTLD_NOW);
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = dlsym(library, "function"), .pre_handler = before };
		check(np_register_probe(&probe));
		int (*function)(int) = (int (*)(int))probe.addr;
		uint64_t seen = np_probe_hits(&probe);
		function(1);
		wrong += np_probe_hits(&probe) <= seen;
		if (round & 1) {
			wrong += np_unregister_probe(&probe) != 0;
			dlclose(library);
		} else {
			dlclose(library);
			int error = np_unregister_probe(&probe);
			wrong += error && error != NP_ERROR_UNLOADED;
		}
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int index = 0; index < 3; index++)
		pthread_join(threads[index], NULL);
	printf("in use: %d wrong%s\n", wrong, have_called(calls) ? "" : ", NOBODY");
}

__attribute__((noinline, noclone)) static int closes(int value)
{
	__asm__ volatile("" ::: "memory");
	return value + 1;
}

/* The library that a handler closes, or opens if the library is closed. */
static void *held;
static int (*again)(int);

static void closes_here(void)
{
	if (held) {
		dlclose(held);
		held = NULL;
	} else {
		held = dlopen(shared[0], RTLD_NOW);
		again = (int (*)(int))dlsym(held, "function");
	}
}

static int closes_before(struct np_probe *probe, struct np_regs *regs)
{
	closes_here();
	return before(probe, regs);
}

static int closes_behind(struct np_retprobe_instance *call, struct np_regs *regs)
{
	(void)call;
	(void)regs;
	closes_here();
	return 0;
}

static int behind(struct np_retprobe_instance *call, struct np_regs *regs)
{
	(void)call;
	(void)regs;
	return 0;
}

/* A handler unloads a library that has probes of all kinds, and another handler loads it again. */
static void in_handlers(char *const paths[2])
{
	int wrong = 0;
	shared = paths;
	for (int round = 0; round < 30; round++) {
		int form = round / 3 % 2 ? NP_RETPROBE_ADDRESS : NP_RETPROBE_EXITS;
		struct np_probe closing = { NP_SIZE(struct np_probe), .addr = (void *)closes, .pre_handler = closes_before };
		struct np_retprobe closing_behind = { { NP_SIZE(struct np_retprobe), .addr = (void *)closes },
						      .handler = closes_behind, .form = form };
		held = dlopen(paths[0], RTLD_NOW);
		void *function = dlsym(held, "function"), *other = dlsym(held, "local_counter");
		int plain = ((int (*)(int))function)(round);
		struct np_probe inner = { NP_SIZE(struct np_probe), .addr = other, .pre_handler = before };
		struct np_retprobe returns = { { NP_SIZE(struct np_retprobe), .addr = function }, .handler = behind,
					       .form = form };
		check(np_register_probe(&inner));
		check(np_register_retprobe(&returns));
		if (round % 3)
			check(np_register_retprobe(&closing_behind));
		else
			check(np_register_probe(&closing));
		wrong += ((int (*)(int))function)(round) != plain || np_probe_hits(&returns.probe) != 1;
		wrong += closes(round) != round + 1 || held != NULL;
		if (round % 3 == 1) {
			/* A handler loads loaded.c again, before libnanoprobe has noticed that it was gone: the library does not see
			 * what the linker does in a handler. So from then on no return address is replaced, and one call is missed. */
			wrong += closes(round) != round + 1;
			wrong += np_retprobe_nmissed(&closing_behind) != (form == NP_RETPROBE_ADDRESS);
			wrong += form == NP_RETPROBE_EXITS && (!held || again(round) != plain);
			if (held)
				dlclose(held);
		}
		struct np_probe late = { NP_SIZE(struct np_probe), .addr = function };
		wrong += np_register_probe(&late) != NP_ERROR_NOT_CODE;
		wrong += np_unregister_probe(&inner) != NP_ERROR_UNLOADED;
		wrong += np_unregister_retprobe(&returns) != NP_ERROR_UNLOADED;
		wrong += (round % 3 ? np_unregister_retprobe(&closing_behind) : np_unregister_probe(&closing)) != 0;
		wrong += closes(round) != round + 1;
	}
	printf("in handlers: %d wrong\n", wrong);
}

int main(int count, char **arguments)
{
	if (count < 3)
		return 1;
	reads_little();
	libraries(arguments + 1);
	by_hand(arguments + 1);
	in_use(arguments + 1);
	in_handlers(arguments + 1);
	return 0;
}
