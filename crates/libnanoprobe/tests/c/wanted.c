/* A return probe has one place. A first thread holds the place idle, and enters again while a second thread takes
 * the place away: at every instruction of the second thread, from its barrier on. The second thread steps by the
 * trap flag, and its signal handler makes the first thread enter. */
#define _GNU_SOURCE
#include <nanoprobe.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define FUNCTION __attribute__((noinline, noclone))
#define load(what) __atomic_load_n(&(what), __ATOMIC_SEQ_CST)
#define store(what, value) __atomic_store_n(&(what), value, __ATOMIC_SEQ_CST)

enum { TRAP = 0x100, STEPS = 32 };

/* How often both threads have reached each of these points. */
static uint64_t began, stopped, entered[2], ended[2], wrong;
/* `wanted`: after how many instructions beyond the barrier the first thread enters. `step`: how many instructions
 * the second thread has executed. */
static int wanted, step;

static void wait_for(const uint64_t *what, uint64_t value)
{
	while (load(*what) != value)
		sched_yield();
}

FUNCTION uint64_t meets(uint64_t round, int number)
{
	if (round) {
		store(entered[number], round);
		wait_for(&entered[!number], round);
	}
	__asm__ volatile("" ::: "memory");
	return 3 * round;
}

FUNCTION uint64_t joins(uint64_t value)
{
	__asm__ volatile("" ::: "memory");
	return value + 1;
}

/* Calls `meets` from one place in the code, so the return probe has seen this return address before. */
FUNCTION uint64_t enters(uint64_t round)
{
	uint64_t result = meets(round, 0);
	__asm__ volatile("" ::: "memory");
	return result;
}

static int nothing(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	return 0;
}

/* If another thread had written to the call, its frame would differ. */
static int returned(struct np_retprobe_instance *call, struct np_regs *regs)
{
	if ((uint64_t)call->frame + 8 != regs->rsp || (uint64_t)call->return_address != regs->rip)
		__atomic_add_fetch(&wrong, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static void steps(int signal, siginfo_t *information, void *context)
{
	greg_t *now = ((ucontext_t *)context)->uc_mcontext.gregs;
	const unsigned char *code = (const unsigned char *)now[REG_RIP];
	(void)signal;
	(void)information;
	if (step < 0 && !(code[0] == 0x0f && code[1] == 0x05 && now[REG_RAX] == SYS_membarrier))
		return;
	if (step < wanted && ++step < wanted)
		return;
	now[REG_EFL] &= ~TRAP;
	/* The trap flag is set again when a detour restores its saved registers. */
	if (load(stopped) == load(began))
		return;
	store(stopped, stopped + 1);
	wait_for(&entered[0], stopped);
}

static void *takes_away(void *rounds)
{
	joins(1);
	for (uint64_t round = 1; round <= (uint64_t)rounds; round++) {
		wait_for(&began, round);
		step = -1;
		__asm__ volatile("leaq -128(%%rsp), %%rsp\n\tpushfq\n\torq %0, (%%rsp)\n\tpopfq\n\tleaq 128(%%rsp), %%rsp"
				 : : "i"(TRAP) : "memory", "cc");
		if (meets(round, 1) != 3 * round)
			__atomic_add_fetch(&wrong, 1, __ATOMIC_SEQ_CST);
		store(ended[1], round);
	}
	return NULL;
}

static void check(int error)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s\n", np_strerror(error), np_last_error());
	exit(1);
}

int main(void)
{
	struct np_probe first = { NP_SIZE(struct np_probe), .addr = joins, .pre_handler = nothing };
	struct sigaction action = { .sa_sigaction = steps, .sa_flags = SA_SIGINFO };
	pthread_t other;
	uint64_t round = 0;
	int failed = 0;
	sigaction(SIGTRAP, &action, NULL);
	check(np_register_probe(&first));
	if (pthread_create(&other, NULL, takes_away, (void *)(uint64_t)(4 * STEPS)))
		return 1;
	for (int way = 0; way < 4; way++)
		for (wanted = 0; wanted < STEPS; wanted++) {
			/* With data, an entry does not take the short way. */
			struct np_retprobe probe = { { NP_SIZE(struct np_retprobe), .addr = meets }, .handler = returned,
						     .maxactive = 1, .data_size = way / 2 * 8,
						     .form = way % 2 ? NP_RETPROBE_ADDRESS : NP_RETPROBE_EXITS };
			check(np_register_retprobe(&probe));
			enters(0);
			store(began, ++round);
			wait_for(&stopped, round);
			if (enters(round) != 3 * round)
				__atomic_add_fetch(&wrong, 1, __ATOMIC_SEQ_CST);
			wait_for(&ended[1], round);
			uint64_t hits = np_probe_hits(&probe.probe), missed = np_retprobe_nmissed(&probe);
			uint64_t bad = __atomic_exchange_n(&wrong, 0, __ATOMIC_SEQ_CST);
			if (hits != 2 || missed != 1 || bad) {
				printf("way %d, %d behind the barrier: %lu hits, %lu missed, %lu wrong\n", way, wanted, hits,
				       missed, bad);
				failed = 1;
			}
			check(np_unregister_retprobe(&probe));
		}
	pthread_join(other, NULL);
	check(np_unregister_probe(&first));
	if (!failed)
		printf("%lu rounds\n", round);
	return failed;
}
