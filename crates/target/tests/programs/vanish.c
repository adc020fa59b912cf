/* Checks its registers, SIMD state and signal mask in a loop that uses only registers, and sleeps in between;
 * prints the number of rounds. With an argument it never sleeps. Ends at the first difference: 1 registers or red
 * zone, 2 a call that fails, 4 SIMD state, 5 its upper halves only, 6 the mask. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **arguments)
{
	(void)arguments;
	sigset_t mask, now;
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	sigprocmask(SIG_BLOCK, &mask, 0);
	int avx = __builtin_cpu_supports("avx");
	for (;;) {
		uint64_t bad = 0, rounds = 300000;
		uint64_t in[4] = { 1, 2, 3, 4 }, out[4] = { 1, 2, 3, 4 };
		if (avx)
			asm volatile("vmovdqu %0, %%ymm13" : : "m"(in) : "xmm13");
		asm volatile("mov $0x1111, %%rbx\n\tmov $0x2222, %%r12\n\tmov $0x3333, %%r13\n\tmov $0x4444, %%rdx\n\t"
			     "mov $0x5555, %%r10\n\tmov $0x6666, %%r11\n\tmov $0x7777, %%rcx\n\tmov %[bad], -64(%%rsp)\n\t"
			     "1: cmp $0x1111, %%rbx\n\tjne 2f\n\tcmp $0x2222, %%r12\n\tjne 2f\n\tcmp $0x3333, %%r13\n\tjne 2f\n\t"
			     "cmp $0x4444, %%rdx\n\tjne 2f\n\tcmp $0x5555, %%r10\n\tjne 2f\n\tcmp $0x6666, %%r11\n\tjne 2f\n\t"
			     "cmp $0x7777, %%rcx\n\tjne 2f\n\tcmpq $0, -64(%%rsp)\n\tjne 2f\n\t"
			     "dec %[rounds]\n\tjnz 1b\n\tjmp 3f\n\t"
			     "2: mov $1, %[bad]\n\t3:"
			     : [bad] "+r"(bad), [rounds] "+r"(rounds)
			     : : "rbx", "r12", "r13", "rdx", "r10", "r11", "rcx", "memory", "cc");
		if (avx)
			asm volatile("vmovdqu %%ymm13, %0" : "=m"(out));
		sigprocmask(SIG_BLOCK, 0, &now);
		if (bad)
			return 1;
		if (memcmp(in, out, sizeof in))
			return out[2] || out[3] ? 4 : 5;
		if (!sigismember(&now, SIGUSR2) || sigismember(&now, SIGHUP))
			return 6;
		if (count < 2) {
			struct timespec brief = { 0, 1000000 };
			/* The death of the tracer may interrupt the sleep a second time. Then it may end with EINTR. */
			if (nanosleep(&brief, 0) && errno != EINTR)
				return 2;
		}
		if (write(1, ".", 1) != 1)
			return 3;
	}
}
