/* Functions with short instructions that have room only if the instruction after them is displaced. No padding is in
 * reach, branches lead to the instruction after, and a jump that shared its bytes would lead to no memory. Threads
 * execute the functions all the time, from every instruction to which a branch leads. Meanwhile probes come and go at
 * the short instructions, at their successors, and at both. */
#include <nanoprobe.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define FUNCTION(name) ".globl " name "\n.type " name ", @function\n" name ":\n"
#define END(name) ".size " name ", . - " name "\n"
/* Code longer than the reach of a short jump, without padding and without a long instruction. */
#define FAR ".rept 64\n leal 1(%rdi), %eax\n .endr\n ret\n"
__asm__(".text\n.p2align 6\n"
	FUNCTION("far_before") FAR END("far_before")
	/* The site is the ret at 8. A branch leads to the instruction after it. The bytes after the ret would be a
	 * displacement that leads below address 0. */
	FUNCTION("one")
	"	xorl %eax, %eax\n"
	"	testl %edi, %edi\n"
	"	jz 1f\n"
	"	jnz 2f\n"
	"1:	ret\n"
	"2:	leal 1(%rdi), %eax\n"
	"	addl $5, %eax\n"
	"	jmp 1b\n"
	END("one")
	FUNCTION("far_between") FAR END("far_between")
	/* For a jump at the inc (13), the mov (15) must be displaced. For that, the imul (18) must be displaced. */
	FUNCTION("chain")
	"	movl %edi, %eax\n"
	"	cmpl $1, %edi\n"
	"	je 2f\n"
	"	ja 3f\n"
	"	jb 1f\n"
	"	ud2\n"
	"1:	incl %eax\n"
	"2:	movq %rax, %rcx\n"
	"3:	imull $3, %eax, %eax\n"
	"	addl $21, %eax\n"
	"	ret\n"
	END("chain")
	FUNCTION("far_behind") FAR END("far_behind")
	".skip 0x20000, 0xcc\n");
/* clang-format on */

int one(int number);
int chain(int number);

static volatile int stop;

static int count(struct np_probe *probe, struct np_regs *regs)
{
	(void)regs;
	__atomic_fetch_add((unsigned long *)probe->user, 1, __ATOMIC_RELAXED);
	return 0;
}

#define PROBE(function, at, counter)                                                                          \
	{ NP_SIZE(struct np_probe), .symbol = function, .offset = at, .pre_handler = count, .user = &counter }
static unsigned long rets, leas, incs, movs, lasts;
static struct np_probe at_ret = PROBE("one", 8, rets), at_lea = PROBE("one", 9, leas);
static struct np_probe at_inc = PROBE("chain", 13, incs), at_mov = PROBE("chain", 15, movs),
		       at_last = PROBE("chain", 18, lasts);

static int results_are_wrong(int number)
{
	return one(number) != (number ? number + 6 : 0) || chain(number) != 3 * ((number ? number : 1) + 7);
}

static unsigned long calls_of_threads;

static void *work(void *unused)
{
	unsigned long calls = 0;
	for (int number = 0; !stop; number = (number + 1) % 3, calls++)
		if (results_are_wrong(number))
			return (void *)"wrong";
	__atomic_fetch_add(&calls_of_threads, calls, __ATOMIC_RELAXED);
	return unused;
}

static int check(int error, const char *what)
{
	if (error)
		fprintf(stderr, "%s: %s: %s\n", what, np_strerror(error), np_last_error());
	return error != 0;
}

enum { CALLS = 99 };

/* Calls both functions in this thread alone. Yields whether the counts are wrong: they have not grown by the number
 * of these calls. */
static int counts_are_wrong(struct np_probe *const *probes, int count, const unsigned long *more)
{
	unsigned long before[5], wrong = 0;
	for (int i = 0; i < count; i++)
		before[i] = *(unsigned long *)probes[i]->user;
	for (int i = 0; i < CALLS; i++)
		wrong += results_are_wrong(i % 3);
	for (int i = 0; i < count; i++)
		wrong += *(unsigned long *)probes[i]->user - before[i] != more[i];
	return wrong != 0;
}

static int turn(struct np_probe *const *probes, int count, const unsigned long *more, int alone)
{
	unsigned long wrong = 0;
	for (int i = 0; i < count; i++) {
		probes[i]->addr = NULL;
		if (check(np_register_probe(probes[i]), "register"))
			return 1;
	}
	for (int i = 0; i < count; i++)
		wrong += np_probe_tactic(probes[i]) == NP_TACTIC_TRAP;
	if (alone)
		for (int i = 0; i < count; i++)
			printf("%s%s", np_tactic_name(np_probe_tactic(probes[i])), i + 1 < count ? " " : "\n");
	wrong += alone && counts_are_wrong(probes, count, more);
	for (int i = 0; i < count; i++)
		if (check(np_unregister_probe(probes[i]), "unregister"))
			return 1;
	return wrong != 0;
}

int main(void)
{
	/* Each of the three numbers is passed in 33 of the 99 calls. */
	static struct np_probe *const ways[][3] = {
		{ &at_ret }, { &at_lea }, { &at_ret, &at_lea }, { &at_lea, &at_ret },
		{ &at_inc }, { &at_mov }, { &at_inc, &at_last }, { &at_mov, &at_inc }, { &at_last, &at_mov, &at_inc },
	};
	static const unsigned long more[][3] = {
		{ 99 }, { 66 }, { 99, 66 }, { 66, 99 }, { 33 }, { 66 }, { 33, 99 }, { 66, 33 }, { 99, 66, 33 },
	};
	enum { WAYS = sizeof(ways) / sizeof(ways[0]), TURNS = 60, THREADS = 2 };
	unsigned char before[2][32];
	pthread_t threads[THREADS];
	unsigned long wrong = 0, bytes = 0;
	const char *result = NULL;
	memcpy(before[0], (void *)one, 17);
	memcpy(before[1], (void *)chain, 25);
	for (int alone = 1; alone >= 0; alone--) {
		for (int i = 0; !alone && i < THREADS; i++)
			if (pthread_create(&threads[i], NULL, work, NULL))
				return 1;
		for (int round = 0; round < (alone ? 1 : TURNS); round++)
			for (int way = 0; way < WAYS; way++) {
				int number = 0;
				while (number < 3 && ways[way][number])
					number++;
				wrong += turn(ways[way], number, more[way], alone);
				bytes += memcmp(before[0], (void *)one, 17) != 0;
				bytes += memcmp(before[1], (void *)chain, 25) != 0;
			}
	}
	/* The threads hit a probe that stays. */
	at_ret.addr = NULL;
	if (check(np_register_probe(&at_ret), "at last"))
		return 1;
	wrong += np_probe_tactic(&at_ret) != NP_TACTIC_EVICT;
	stop = 1;
	for (int i = 0; i < THREADS; i++) {
		void *said;
		pthread_join(threads[i], &said);
		result = said ? said : result;
	}
	wrong += rets < 99;
	if (check(np_unregister_probe(&at_ret), "at last"))
		return 1;
	printf("%lu wrong, %lu texts, %s\n", wrong, bytes, result ? result : "right");
	return 0;
}
