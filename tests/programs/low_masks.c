/* Masks and actions that are set by `int $0x80`, as a program of 32 bits sets them, while a probed function is called.
 * low_masks [rounds]
 * Reads everything back by `int $0x80` and by the C library. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include "check.h"

/* Numbers of 32-bit programs. */
enum { SIGACTION = 67, SIGPROCMASK = 126, RT_SIGACTION = 174, RT_SIGPROCMASK = 175 };
enum { NOWHERE = 8 };

static long probed_calls, old_calls;

/* What the calls read and write, at an address of 32 bits. */
static struct low {
	uint32_t set[2], old[2], action[5], read[5];
} *low;

#define INTERRUPT(number, first, second, third, fourth)                                                      \
	({                                                                                                       \
		long result_, r11_ = 11, rcx_ = (long)(second);                                                      \
		__asm__ volatile("mov %[r11], %%r11; mov %[n], %%eax; int $0x80; mov %%r11, %[r11]"                  \
		                 : "=&a"(result_), [r11] "+m"(r11_), "+c"(rcx_)                                      \
		                 : [n] "i"(number), "b"((long)(first)), "d"((long)(third)), "S"((long)(fourth))      \
		                 : "r8", "r9", "r10", "r11", "memory");                                              \
		CHECK(r11_ == 11 && rcx_ == (long)(second));                                                         \
		result_;                                                                                             \
	})

PROBED long probed(long value)
{
	probed_calls++;
	return value * 3 + 1;
}

static uint32_t bit(int signal)
{
	return 1U << (signal - 1);
}

static uint64_t mask_of_libc(void)
{
	sigset_t set;
	CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0);
	return *(uint64_t *)&set;
}

static void calls(void)
{
	for (long value = 0; value < 3; value++)
		CHECK(probed(value) == value * 3 + 1);
}

static void masks(void)
{
	const uint32_t ours = bit(SIGTRAP) | bit(SIGSEGV) | bit(SIGUSR1), segv = bit(SIGSEGV);
	low->set[0] = ours;
	low->set[1] = 0;
	CHECK(INTERRUPT(RT_SIGPROCMASK, SIG_BLOCK, low->set, low->old, 8) == 0);
	CHECK(low->old[0] == 0 && mask_of_libc() == ours);
	calls();
	CHECK(INTERRUPT(RT_SIGPROCMASK, SIG_BLOCK, 0, low->old, 8) == 0);
	CHECK(low->old[0] == ours && low->old[1] == 0);
	low->set[0] = segv;
	CHECK(INTERRUPT(RT_SIGPROCMASK, SIG_UNBLOCK, low->set, 0, 8) == 0 && mask_of_libc() == (ours & ~segv));
	calls();
	/* The call with one word leaves the other signals alone. */
	sigset_t high;
	CHECK(sigemptyset(&high) == 0 && sigaddset(&high, SIGRTMIN + 5) == 0);
	CHECK(sigprocmask(SIG_SETMASK, &high, NULL) == 0);
	const uint64_t above = *(uint64_t *)&high;
	low->set[0] = ours;
	low->old[0] = 1;
	low->old[1] = 77;
	old_calls += 4;
	CHECK(INTERRUPT(SIGPROCMASK, SIG_SETMASK, low->set, low->old, 0) == 0);
	CHECK(low->old[0] == 0 && low->old[1] == 77 && mask_of_libc() == (above | ours));
	calls();
	CHECK(INTERRUPT(SIGPROCMASK, SIG_BLOCK, 0, low->old, 0) == 0 && low->old[0] == ours);
	low->set[0] = segv;
	CHECK(INTERRUPT(SIGPROCMASK, SIG_UNBLOCK, low->set, low->set, 0) == 0 && low->set[0] == ours);
	CHECK(mask_of_libc() == (above | (ours & ~segv)));
	low->set[0] = 0;
	CHECK(INTERRUPT(SIGPROCMASK, SIG_SETMASK, low->set, 0, 0) == 0 && mask_of_libc() == above);
	low->set[0] = 0;
	low->set[1] = 0;
	CHECK(INTERRUPT(RT_SIGPROCMASK, SIG_SETMASK, low->set, 0, 8) == 0 && mask_of_libc() == 0);
}

static void wrong_masks(void)
{
	low->set[0] = bit(SIGTRAP);
	old_calls += 3;
	CHECK(INTERRUPT(RT_SIGPROCMASK, SIG_BLOCK, NOWHERE, 0, 8) == -EFAULT);
	CHECK(INTERRUPT(RT_SIGPROCMASK, 77, low->set, 0, 8) == -EINVAL);
	CHECK(INTERRUPT(RT_SIGPROCMASK, SIG_BLOCK, low->set, 0, 4) == -EINVAL);
	CHECK(INTERRUPT(SIGPROCMASK, SIG_BLOCK, NOWHERE, 0, 0) == -EFAULT);
	CHECK(INTERRUPT(SIGPROCMASK, 77, low->set, 0, 0) == -EINVAL);
	CHECK(mask_of_libc() == 0);
	/* The mask has changed nevertheless. */
	CHECK(INTERRUPT(SIGPROCMASK, SIG_BLOCK, low->set, NOWHERE, 0) == -EFAULT && mask_of_libc() == bit(SIGTRAP));
	calls();
	CHECK(INTERRUPT(RT_SIGPROCMASK, SIG_UNBLOCK, low->set, NOWHERE, 8) == -EFAULT && mask_of_libc() == 0);
}

/* A signal that is sent while it is blocked stays pending, and is taken. */
static void pending(void)
{
	sigset_t trap, now;
	CHECK(sigemptyset(&trap) == 0 && sigaddset(&trap, SIGTRAP) == 0);
	low->set[0] = bit(SIGTRAP);
	CHECK(INTERRUPT(RT_SIGPROCMASK, SIG_BLOCK, low->set, 0, 8) == 0);
	CHECK(raise(SIGTRAP) == 0);
	calls();
	CHECK(sigpending(&now) == 0 && sigismember(&now, SIGTRAP) == 1);
	CHECK(sigtimedwait(&trap, NULL, &(struct timespec){ 0 }) == SIGTRAP);
	CHECK(INTERRUPT(RT_SIGPROCMASK, SIG_UNBLOCK, low->set, 0, 8) == 0);
}

static void at_trap(int signal)
{
	(void)signal;
}

static void actions(void)
{
	struct sigaction known;
	memset(&known, 0, sizeof known);
	known.sa_handler = at_trap;
	known.sa_flags = SA_RESTART;
	sigaddset(&known.sa_mask, SIGUSR2);
	CHECK(sigaction(SIGTRAP, &known, NULL) == 0);
	/* handler, flags, restorer, mask */
	memset(low->action, 0, sizeof low->action);
	low->action[0] = (uint32_t)(uintptr_t)SIG_IGN;
	low->action[1] = SA_NODEFER;
	low->action[3] = bit(SIGUSR1);
	low->action[4] = 1;
	CHECK(INTERRUPT(RT_SIGACTION, SIGTRAP, low->action, low->read, 8) == 0);
	CHECK(low->read[0] == (uint32_t)(uintptr_t)at_trap && low->read[1] & SA_RESTART);
	CHECK(low->read[3] == bit(SIGUSR2) && low->read[4] == 0);
	calls();
	CHECK(sigaction(SIGTRAP, NULL, &known) == 0 && known.sa_handler == SIG_IGN && known.sa_flags & SA_NODEFER);
	CHECK(*(uint64_t *)&known.sa_mask == (bit(SIGUSR1) | 1UL << 32));
	CHECK(INTERRUPT(RT_SIGACTION, SIGTRAP, 0, low->read, 8) == 0);
	CHECK(low->read[0] == 1 && low->read[3] == bit(SIGUSR1) && low->read[4] == 1);
	CHECK(raise(SIGTRAP) == 0);
	/* handler, mask, flags, restorer */
	old_calls += 3;
	CHECK(INTERRUPT(SIGACTION, SIGTRAP, 0, low->read, 0) == 0 && low->read[0] == 1 && low->read[1] == bit(SIGUSR1));
	memset(low->action, 0, sizeof low->action);
	CHECK(INTERRUPT(SIGACTION, SIGTRAP, low->action, NOWHERE, 0) == -EFAULT);
	CHECK(INTERRUPT(SIGACTION, SIGTRAP, NOWHERE, 0, 0) == -EFAULT);
	calls();
	CHECK(sigaction(SIGTRAP, NULL, &known) == 0 && known.sa_handler == SIG_DFL);
	CHECK(INTERRUPT(RT_SIGACTION, SIGTRAP, low->action, 0, 4) == -EINVAL);
	CHECK(INTERRUPT(RT_SIGACTION, SIGKILL, low->action, 0, 8) == -EINVAL);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long rounds = number(argc, argv, 1, 20);
	low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	CHECK(low != MAP_FAILED);
	wait_for_go();
	for (long round = 0; round < rounds; round++) {
		masks();
		wrong_masks();
		pending();
		actions();
	}
	printf("probed %ld\nunknown %ld\n", probed_calls, old_calls);
	return finish(mix(MIX_START, (uint64_t)probed_calls));
}
