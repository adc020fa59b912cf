/* A call chain that a stack shows whole: own functions without frame pointers, a callback from the C library, a signal
 * frame, recursion, variable-length arrays.
 * stacks [rounds]
 * stack_deepest is reached by: main, stack_outer, qsort (libc), stack_compare, stack_inner, raise (libc), the signal
 * frame, stack_handler, stack_deepest. And stack_leaf by: main, stack_recursive eleven times. And stack_away by: main,
 * stack_last, which ends with the call of it, so that the return address is stack_neighbour's first byte; or by main,
 * stack_padded, where it may lie in what fills the code up to the next function. */
#include <setjmp.h>
#include <signal.h>
#include "check.h"

static long reached, leaves;

PROBED void stack_deepest(void) { reached++; }

PROBED void stack_handler(int signal)
{
	CHECK(signal == SIGUSR1);
	stack_deepest();
	__asm__ volatile("");
}

PROBED int stack_inner(int value)
{
	char space[value + 16]; /* with this array, the frame needs a base register */
	memset(space, value, sizeof space);
	__asm__ volatile("" : : "r"(space) : "memory");
	CHECK(raise(SIGUSR1) == 0);
	return space[0];
}

PROBED int stack_compare(const void *left, const void *right)
{
	int value = stack_inner(*(const char *)left);
	return value - *(const char *)right;
}

PROBED void stack_outer(void)
{
	char two[2] = {2, 1};
	qsort(two, 2, 1, stack_compare);
	CHECK(two[0] == 1 && two[1] == 2);
}

PROBED void stack_leaf(void) { leaves++; }

PROBED long stack_recursive(long depth)
{
	if (depth == 0) {
		stack_leaf();
		return 0;
	}
	long below = stack_recursive(depth - 1);
	DO_AFTER_CALL(below);
	return below + depth;
}

static jmp_buf way_back;

PROBED _Noreturn void stack_away(void) { longjmp(way_back, 1); }

PROBED void stack_padded(void) { stack_away(); }

void stack_last(void);
__asm__(".pushsection .text\n"
	".type stack_last, @function\n"
	"stack_last:\n"
	".cfi_startproc\n"
	"	sub $8, %rsp\n"
	".cfi_def_cfa_offset 16\n"
	"	call stack_away\n"
	".cfi_endproc\n"
	".size stack_last, .-stack_last\n"
	".type stack_neighbour, @function\n"
	"stack_neighbour:\n"
	"	ret\n"
	".size stack_neighbour, .-stack_neighbour\n"
	".popsection");

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long rounds = number(argc, argv, 1, 10);
	struct sigaction sa = {.sa_handler = stack_handler};
	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	for (long round = 0; round < rounds; round++) {
		stack_outer();
		CHECK(stack_recursive(10) == 55);
		if (!setjmp(way_back))
			(round % 2 ? stack_padded : stack_last)();
	}
	CHECK(reached == rounds && leaves == rounds);
	printf("rounds %ld\n", rounds);
	return finish(mix(MIX_START, (uint64_t)reached));
}
