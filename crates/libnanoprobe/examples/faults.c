/* A fault injector for any dynamic program, by LD_PRELOAD: some allocations fail, some writes are slow.
 *
 * 	cc -O2 -shared -fPIC -o faults.so faults.c $(pkg-config --cflags --libs nanoprobe)
 * 	FAULTS_MALLOC=1000 FAULTS_SIZE=4096 FAULTS_WRITE=10 FAULTS_DELAY=5000 LD_PRELOAD=./faults.so redis-server
 *
 *   FAULTS_MALLOC=N   every N-th malloc that is large enough yields NULL; 0: none
 *   FAULTS_SIZE=B     large enough: B bytes (default 1)
 *   FAULTS_WRITE=N    every N-th write(2) through the C library is delayed; 0: none
 *   FAULTS_DELAY=T    by T microseconds (default 1000)
 *   FAULTS_REPORT=1   print on stderr at the end how many mallocs failed and how many writes were delayed
 *
 * No symbol is interposed: the probes stand in the C library itself. So calls from within the library are seen,
 * too, and so are calls that the dynamic linker resolved before. System calls that the program makes without the C
 * library are not seen.
 */
#include <nanoprobe.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t every_malloc, least_size, every_write, delay_us;
static _Atomic uint64_t mallocs, failed, writes, delayed;

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text ? strtoull(text, NULL, 10) : otherwise;
}

/* The function returns `value` at once: its return address goes from the stack to rip. */
static int instead(struct np_regs *regs, uint64_t value)
{
	regs->rax = value;
	regs->rip = *(uint64_t *)regs->rsp;
	regs->rsp += 8;
	return 1;
}

static int before_malloc(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	if (regs->rdi < least_size || ++mallocs % every_malloc != 0)
		return 0;
	failed++;
	return instead(regs, 0);
}

static int before_write(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	if (++writes % every_write != 0)
		return 0;
	delayed++;
	struct timespec time = { (time_t)(delay_us / 1000000), (long)(delay_us % 1000000) * 1000 };
	nanosleep(&time, NULL);
	return 0;
}

static struct np_probe on_malloc = { NP_SIZE(struct np_probe), .symbol = "libc:malloc", .pre_handler = before_malloc,
				     .flags = NP_PROBE_NO_SIMD };
static struct np_probe on_write = { NP_SIZE(struct np_probe), .symbol = "libc:write", .pre_handler = before_write };

static void put(struct np_probe *probe)
{
	int error = np_register_probe(probe);
	if (error)
		fprintf(stderr, "faults: %s: %s (%s)\n", probe->symbol, np_strerror(error), np_last_error());
}

__attribute__((constructor)) static void begin(void)
{
	every_malloc = setting("FAULTS_MALLOC", 0);
	least_size = setting("FAULTS_SIZE", 1);
	every_write = setting("FAULTS_WRITE", 0);
	delay_us = setting("FAULTS_DELAY", 1000);
	if (every_malloc)
		put(&on_malloc);
	if (every_write)
		put(&on_write);
}

__attribute__((destructor)) static void end(void)
{
	if (setting("FAULTS_REPORT", 0))
		fprintf(stderr, "faults: %lu of %lu mallocs failed, %lu of %lu writes delayed\n", failed, mallocs, delayed,
			writes);
}
