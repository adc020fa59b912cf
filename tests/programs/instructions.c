/* One of each kind of code whose every instruction can be probed: branches, loops, calls, a jump table, string
 * instructions, recursion, a cold part, an entry in the middle, functions of one instruction, the last byte of a
 * section. Every run executes the same instructions.
 * instructions [rounds] */
#include "check.h"

/* The offsets of these are known: see tests/tests/names.rs. */
uint64_t asm_known(uint64_t value);
void asm_single(void);
int64_t asm_split(int64_t value);
uint64_t asm_last(uint64_t value);
uint64_t asm_outer(uint64_t value);
uint64_t asm_inner(uint64_t value);
void asm_strings(char *to, const char *from, uint64_t bytes);
uint64_t asm_backwards(uint64_t rounds);
uint64_t asm_shorts(uint64_t value);

__asm__(".text\n"
	".globl asm_known, asm_single, asm_split, asm_outer, asm_inner, asm_strings, asm_backwards, asm_shorts\n"
	".type asm_known, @function\n"
	"asm_known:\n"
	"	push %rbp\n"                 /* 0 */
	"	mov %rsp, %rbp\n"            /* 1 */
	"	lea 7(%rdi), %rax\n"         /* 4 */
	"	pop %rbp\n"                  /* 8 */
	"	ret\n"                       /* 9 */
	".size asm_known, . - asm_known\n"

	".type asm_single, @function\n"
	"asm_single:\n"
	"	ret\n"
	".size asm_single, . - asm_single\n"

	".type asm_split, @function\n"
	"asm_split:\n"
	"	test %rdi, %rdi\n"           /* 0 */
	"	js asm_split.cold\n"         /* 3 */
	"	mov %rdi, %rax\n"            /* 9 */
	"	ret\n"                       /* c */
	".size asm_split, . - asm_split\n"
	".pushsection .text.unlikely, \"ax\", @progbits\n"
	".type asm_split.cold, @function\n"
	"asm_split.cold:\n"
	"	mov %rdi, %rax\n"
	"	neg %rax\n"
	"	ret\n"
	".size asm_split.cold, . - asm_split.cold\n"
	".popsection\n"

	/* A function with an entry in the middle, as in libc's assembly. */
	".type asm_outer, @function\n"
	".type asm_inner, @function\n"
	"asm_outer:\n"
	"	inc %rdi\n"                  /* 0 */
	"asm_inner:\n"
	"	lea (%rdi, %rdi), %rax\n"    /* 3 */
	"	ret\n"                       /* 7 */
	".size asm_inner, . - asm_inner\n"
	".size asm_outer, . - asm_outer\n"

	".type asm_strings, @function\n"
	"asm_strings:\n"
	"	mov %rdx, %rcx\n"            /* 0 */
	"	mov %rdi, %r8\n"             /* 3 */
	"	rep movsb\n"                 /* 6 */
	"	mov %r8, %rdi\n"             /* 8 */
	"	mov %rdx, %rcx\n"            /* b */
	"	mov $120, %al\n"             /* e */
	"	repne scasb\n"               /* 10 */
	"	ret\n"                       /* 12 */
	".size asm_strings, . - asm_strings\n"

	/* A loop whose jump leads to itself, and one that leads one byte into the bytes that a jump would overwrite. */
	".type asm_backwards, @function\n"
	"asm_backwards:\n"
	"	mov %rdi, %rcx\n"            /* 0 */
	"	xor %eax, %eax\n"            /* 3 */
	"	push %rbx\n"                 /* 5 */
	"1:	inc %eax\n"                  /* 6 */
	"	loop 1b\n"                   /* 8 */
	"	mov %rdi, %rcx\n"            /* a */
	"2:	loop 2b\n"                   /* d */
	"	pop %rbx\n"                  /* f */
	"	ret\n"                       /* 10 */
	".size asm_backwards, . - asm_backwards\n"

	/* Instructions of one and two bytes, with branches to all of them. */
	".type asm_shorts, @function\n"
	"asm_shorts:\n"
	"	push %rbx\n"
	"	push %rdi\n"
	"	pop %rax\n"
	"	nop\n"
	"	test $1, %al\n"
	"	jz 1f\n"
	"	inc %eax\n"
	"1:	test $2, %al\n"
	"	jz 2f\n"
	"	nop\n"
	"2:	nop\n"
	"	test $4, %al\n"
	"	jz 3f\n"
	"	cltq\n"
	"3:	clc\n"
	"	pop %rbx\n"
	"	ret\n"
	".size asm_shorts, . - asm_shorts\n"

	".pushsection .last_text, \"ax\", @progbits\n"
	".globl asm_last\n"
	".type asm_last, @function\n"
	"asm_last:\n"
	"	lea (%rdi, %rdi), %rax\n"    /* 0 */
	"	ret\n"                       /* 4: the last byte of its section */
	".size asm_last, . - asm_last\n"
	".popsection\n");

PROBED uint64_t by_table(unsigned which, uint64_t value)
{
	switch (which) {
	case 0: return value + 11;
	case 1: return value * 3;
	case 2: return value ^ 0x55;
	case 3: return value << 2;
	case 4: return ~value;
	case 5: return value / 7;
	case 6: return value % 13;
	case 7: return value - 1;
	case 8: return value | 1024;
	default: return value;
	}
}

PROBED uint64_t recursive(unsigned depth, uint64_t value)
{
	if (depth == 0)
		return value;
	value = recursive(depth - 1, value + depth);
	DO_AFTER_CALL(value);
	return depth % 3 ? value + recursive(depth / 3, value & 7) : value;
}

PROBED int by_value(const void *left, const void *right)
{
	int a = *(const int *)left, b = *(const int *)right;
	return (a > b) - (a < b);
}

PROBED uint64_t of_doubles(double value)
{
	double sum = 0;
	for (int i = 1; i < 9; i++)
		sum += value / i;
	return (uint64_t)(sum * 1000);
}

static char text[64] __attribute__((aligned(64))) = "the quick brown fox jumps over the lazy dog";
static char buffer[128] __attribute__((aligned(64)));
static int numbers[24] __attribute__((aligned(64)));

PROBED uint64_t library(uint64_t value)
{
	uint64_t sum = strlen(text + value % 8);
	for (int i = 0; i < 24; i++)
		numbers[i] = (int)((value + (uint64_t)i) * 2654435761u % 997);
	qsort(numbers, 24, sizeof *numbers, by_value);
	for (int i = 1; i < 24; i++)
		CHECK(numbers[i - 1] <= numbers[i]);
	int written = snprintf(buffer, sizeof buffer, "%d %s %#lx %5.2f", numbers[3], text + 4, value, (double)value / 3);
	CHECK(written == (int)strlen(buffer));
	char *copy = malloc(100 + value % 50);
	CHECK(copy != NULL);
	memcpy(copy, buffer, (size_t)written + 1);
	sum += (uint64_t)strcmp(copy, buffer) + (uint64_t)written;
	free(copy);
	return sum;
}

PROBED uint64_t round_of(uint64_t round, uint64_t sum)
{
	sum = mix(sum, asm_known(round));
	asm_single();
	sum = mix(sum, (uint64_t)asm_split((int64_t)round - 2));
	sum = mix(sum, asm_outer(round) + asm_inner(round));
	asm_strings(buffer, text, 40);
	CHECK(memcmp(buffer, text, 40) == 0);
	sum = mix(sum, asm_backwards(round % 5 + 1));
	sum = mix(sum, asm_shorts(round));
	sum = mix(sum, asm_last(round));
	sum = mix(sum, by_table((unsigned)(round % 11), sum));
	sum = mix(sum, recursive((unsigned)(round % 6), round));
	sum = mix(sum, of_doubles((double)round));
	return mix(sum, library(round));
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	uint64_t rounds = (uint64_t)number(argc, argv, 1, 8), sum = MIX_START;
	for (uint64_t round = 0; round < rounds; round++)
		sum = round_of(round, sum);
	printf("rounds %lu\n", (unsigned long)rounds);
	return finish(sum);
}
