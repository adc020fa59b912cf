/* A function whose first instruction has room only for a short jump. The next instructions are a loop's head, and a
 * jump that shares bytes with them would lead into this program's own text. */
#include <nanoprobe.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

__asm__(".text\n"
	".p2align 6\n"
	".globl evicted\n"
	".type evicted, @function\n"
	"evicted:\n"
	"	movq %rdi, %rax\n" /* three bytes */
	"1:	.byte 0x00, 0x00\n" /* addb %al, (%rax) */
	"	.byte 0x00, 0x00\n"
	"	decl %esi\n"
	"	jnz 1b\n"
	"2:	ret\n"
	".size evicted, . - evicted\n"
	".p2align 6\n"
	".globl behind_evicted\n"
	".type behind_evicted, @function\n"
	"behind_evicted:\n"
	"	ret\n"
	".skip 0x20000, 0xcc\n"
	".size behind_evicted, . - behind_evicted\n");

unsigned char *evicted(unsigned char *bytes, int rounds);

static unsigned char bytes[256] __attribute__((aligned(256)));
static volatile int stop;

static int count(struct np_probe *probe, struct np_regs *regs)
{
	(void)regs;
	__atomic_fetch_add((unsigned long *)probe->user, 1, __ATOMIC_RELAXED);
	return 0;
}

static unsigned long entries, rets;
static struct np_probe entry = {
	NP_SIZE(struct np_probe), .symbol = "evicted", .pre_handler = count, .user = &entries
};
/* The jump of this probe would need the padding in which the other probe's springboard may lie. */
static struct np_probe end = {
	NP_SIZE(struct np_probe), .symbol = "evicted", .offset = 11, .pre_handler = count, .user = &rets
};

static void *work(void *unused)
{
	static __thread unsigned char own[256] __attribute__((aligned(256)));
	while (!stop)
		if (evicted(own, 3) != own)
			return (void *)"wrong";
	return unused;
}

static int check(int error, const char *what)
{
	if (error)
		fprintf(stderr, "%s: %s: %s\n", what, np_strerror(error), np_last_error());
	return error != 0;
}

int main(void)
{
	pthread_t thread;
	unsigned char before[12];
	unsigned long wrong = 0;
	void *result;
	memcpy(before, (void *)evicted, sizeof before);
	if (pthread_create(&thread, NULL, work, NULL))
		return 1;
	for (int turn = 0; turn < 200; turn++) {
		if (check(np_register_probe(&entry), "entry"))
			return 1;
		if (turn == 0)
			printf("%s\n", np_tactic_name(np_probe_tactic(&entry)));
		wrong += np_probe_tactic(&entry) == NP_TACTIC_TRAP;
		end.addr = NULL;
		if (turn % 2 && check(np_register_probe(&end), "end"))
			return 1;
		unsigned long seen[] = { entries, rets };
		for (int i = 0; i < 100; i++)
			wrong += evicted(bytes, 1 + i % 3) != bytes;
		wrong += entries - seen[0] < 100 || (turn % 2 && rets - seen[1] < 100);
		if (turn % 2 && check(np_unregister_probe(&end), "end"))
			return 1;
		if (check(np_unregister_probe(&entry), "entry"))
			return 1;
		wrong += memcmp(before, (void *)evicted, sizeof before) != 0;
	}
	stop = 1;
	pthread_join(thread, &result);
	printf("%lu wrong, %s\n", wrong, result ? (char *)result : "right");
	return 0;
}
