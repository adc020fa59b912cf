/* Places where no probe may stand, and the errors for them. argv[1]: a library to load and unload. */
#define _GNU_SOURCE
#include <nanoprobe.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "kernel.h"

__attribute__((noinline, noclone, noipa)) int plain(int value)
{
	__asm__ volatile("" ::: "memory");
	return value * 3 + 1;
}

static volatile int hits;

static int counts(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	hits++;
	return 0;
}

/* Tries to register a probe at an address, and yields the error. A probe that was accepted is removed again. */
static int try(const void *address)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)address, .pre_handler = counts };
	int error = np_register_probe(&probe);
	if (!error && np_unregister_probe(&probe))
		abort();
	return error;
}

static int try_symbol(const char *symbol, size_t offset)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .symbol = symbol, .offset = offset, .pre_handler = counts };
	int error = np_register_probe(&probe);
	if (!error && np_unregister_probe(&probe))
		abort();
	return error;
}

/* The code that a hit executes: the library's text, from end to end; the handlers of the signals that hits raise,
 * and the code by which they return; the detour. */
static void path(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = counts };
	if (np_register_probe(&probe))
		abort();
	int refused = 0, others = 0;
	struct link_map *map;
	Dl_info info;
	if (!dladdr1((void *)np_version, &info, (void **)&map, RTLD_DL_LINKMAP))
		abort();
	const ElfW(Ehdr) *head = info.dli_fbase;
	const ElfW(Phdr) *segments = (const void *)((const char *)head + head->e_phoff);
	for (int index = 0; index < head->e_phnum; index++) {
		if (segments[index].p_type != PT_LOAD || !(segments[index].p_flags & PF_X))
			continue;
		const char *start = (const char *)info.dli_fbase + segments[index].p_vaddr;
		for (size_t offset = 0; offset < segments[index].p_memsz; offset += segments[index].p_memsz / 500)
			*(try(start + offset) == NP_ERROR_FORBIDDEN ? &refused : &others) += 1;
	}
	printf("the library: %s, %d others\n", refused >= 500 ? "refused" : "NOT", others);
	static const int signals[] = { SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGFPE };
	printf("signals:");
	for (int index = 0; index < 5; index++) {
		struct {
			void *handler;
			unsigned long flags;
			void *restorer;
			uint64_t mask;
		} action;
		kernel_action(signals[index], &action);
		printf(" %d %d", try(action.handler), try(action.restorer));
	}
	const char *site = (const char *)plain;
	int32_t displacement;
	memcpy(&displacement, site + 1, 4);
	printf("\ndetour: %d\n", (unsigned char)*site == 0xe9 ? try(site + 5 + displacement) : -1);
	if (plain(2) != 7 || hits != 1 || np_unregister_probe(&probe))
		abort();
}

/* The C library's system calls in front of which the agent has shims: no probe may displace these, and a probe may
 * stand on any other instruction. */
static void in_front(void)
{
	int refused = 0, taken = 0, others = 0;
	for (size_t offset = 0; offset < 200; offset++) {
		int error = try_symbol("libc:pthread_sigmask", offset);
		refused += error == NP_ERROR_FORBIDDEN;
		taken += error == 0;
		others += error != NP_ERROR_FORBIDDEN && error && error != NP_ERROR_BOUNDARY && error != NP_ERROR_NOT_CODE;
	}
	printf("signal calls: %s, %s, %d others\n", refused ? "refused" : "NOT", taken > 5 ? "the rest taken" : "NONE", others);
	sigset_t set;
	if (pthread_sigmask(SIG_BLOCK, NULL, &set))
		abort();
}

static volatile sig_atomic_t signals;

static void on_signal(int signal)
{
	(void)signal;
	signals++;
}

/* The program's own signal handlers return by code of the C library, which may be probed. */
static void restorer(void)
{
	struct {
		void *handler;
		unsigned long flags;
		void *restorer;
		uint64_t mask;
	} action;
	signal(SIGUSR1, on_signal);
	kernel_action(SIGUSR1, &action);
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = action.restorer, .pre_handler = counts };
	int error = np_register_probe(&probe);
	hits = 0;
	for (int round = 0; round < 10; round++)
		raise(SIGUSR1);
	printf("restorer: %s, %d signals\n", error ? "refused" : hits == 10 ? "10 hits" : "LOST", signals);
	if (!error && np_unregister_probe(&probe))
		abort();
}

static void not_code(const char *library)
{
	static int variable;
	int local;
	void *heap = malloc(100);
	unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	page[0] = 0xc3;
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC))
		abort();
	printf("variable %d, stack %d, heap %d, constant %d, own page %d\n", try(&variable), try(&local), try(heap), try("text"),
	       try(page));
	printf("first page %d, vsyscall %d, kernel %d, wrapped %d\n", try((void *)16), try((void *)0xffffffffff600000),
	       try((void *)0xffffffff80000000), try_symbol("plain", -(size_t)0x100000000));
	int inside = 0;
	for (size_t offset = 1; offset < 8; offset++)
		inside += try_symbol("plain", offset) == NP_ERROR_BOUNDARY;
	printf("inside of instructions: %s\n", inside > 2 ? "refused" : "NOT");
	printf("symbols: %d %d %d\n", try_symbol("np_no_such", 0), try_symbol("nowhere:malloc", 0), try_symbol("libc:plain", 0));
	void *handle = dlopen(library, RTLD_NOW);
	if (!handle)
		abort();
	void *function = dlsym(handle, "function");
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = function, .pre_handler = counts };
	struct np_probe again = probe;
	if (!function || np_register_probe(&probe))
		abort();
	dlclose(handle);
	int address = np_register_probe(&again);
	int enable = np_enable_probe(&probe), unregister = np_unregister_probe(&probe);
	printf("unloaded: address %d, enable %d, unregister %d, twice %d\n", address, enable, unregister,
	       np_unregister_probe(&probe));
	free(heap);
}

static int (*local_counter)(int);

static void *counts_locally(void *sum)
{
	for (int round = 0; round < 10; round++)
		*(int *)sum += local_counter(1);
	return NULL;
}

/* Functions of other modules that a thread's first hit calls before the thread has a block. The thread's first hit
 * is in such a function. */
static void first_hits(const char *library)
{
	void *handle = dlopen(library, RTLD_NOW);
	local_counter = handle ? (int (*)(int))dlsym(handle, "local_counter") : NULL;
	if (!local_counter)
		abort();
	static const char *const symbols[] = { "__tls_get_addr", "__errno_location", "pthread_setspecific", "pthread_getspecific" };
	enum { COUNT = sizeof(symbols) / sizeof(symbols[0]) };
	struct np_probe probes[COUNT];
	for (int index = 0; index < COUNT; index++) {
		probes[index] = (struct np_probe){ NP_SIZE(struct np_probe), .symbol = symbols[index], .pre_handler = counts };
		int error = np_register_probe(&probes[index]);
		if (error)
			printf("%s: %d\n", symbols[index], error);
	}
	int sum = 0;
	uint64_t before = np_probe_hits(&probes[0]);
	for (int round = 0; round < 20; round++) {
		pthread_t thread;
		pthread_create(&thread, NULL, counts_locally, &sum);
		pthread_join(thread, NULL);
	}
	printf("first hits: %d, %s\n", sum, np_probe_hits(&probes[0]) - before >= 200 ? "seen" : "NOT");
	for (int index = 0; index < COUNT; index++)
		if (np_unregister_probe(&probes[index]))
			abort();
	dlclose(handle);
}

int main(int count, char **arguments)
{
	if (count < 2)
		return 1;
	path();
	in_front();
	restorer();
	first_hits(arguments[1]);
	not_code(arguments[1]);
	return 0;
}
