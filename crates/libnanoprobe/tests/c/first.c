/* The header's example, and the next thing that a user might write: fault injection in malloc. */
#include <nanoprobe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int calls;

static int before(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	calls++;
	return 0;
}

static int fail(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	if (regs->rdi != 4242)
		return 0;
	regs->rax = 0;
	regs->rip = *(uint64_t *)regs->rsp;
	regs->rsp += 8;
	return 1;
}

static struct np_probe count = { NP_SIZE(struct np_probe), .symbol = "malloc", .pre_handler = before };
static struct np_probe injection = { NP_SIZE(struct np_probe), .symbol = "libc:malloc", .pre_handler = fail };

static int check(int error, const char *what)
{
	if (error)
		fprintf(stderr, "%s: %s: %s\n", what, np_strerror(error), np_last_error());
	return error != 0;
}

int main(void)
{
	struct np_probe *both[] = { &count, &injection };
	if (np_version() != (NP_VERSION_MAJOR << 16 | NP_VERSION_MINOR))
		return 1;
	if (check(np_register_probes(both, 2), "register"))
		return 1;
	int before_calls = calls;
	void *volatile good = malloc(4243), *volatile bad = malloc(4242);
	printf("%d %s %s %s\n", calls - before_calls, good ? "good" : "NULL", bad ? "good" : "NULL",
	       np_tactic_name(np_probe_tactic(&count)) != NULL ? "placed" : "");
	free(good);
	if (check(np_unregister_probes(both, 2), "unregister"))
		return 1;
	bad = malloc(4242);
	printf("%s %d\n", bad ? "good" : "NULL", np_unregister_probe(&count));
	free(bad);
	return 0;
}
