/* Functions that have no names in a stripped build. The program checks its own results. */
#include <stdio.h>
#include <stdlib.h>
#include "check.h"

volatile long sink;

PROBED static long leaf(long n) { return n * 3 + sink; }
PROBED static long twice(long n) { return leaf(n) + leaf(n + 1); }
PROBED static long tail(long n) { sink += 0; return leaf(n + 2); }
PROBED static long recursive(long n) { return n <= 0 ? 0 : recursive(n - 1) + twice(n); }
PROBED __attribute__((cold)) static void seldom(const char *text) { sink += atol(text); }
/* A function with a frame, and with a part that is entered by a jump. */
PROBED static long unlikely(long n)
{
	char text[32];
	if (__builtin_expect(n % 10 == 9, 0)) {
		snprintf(text, sizeof text, "%ld", n);
		seldom(text);
		sink -= n;
	}
	return n + sink;
}

/* A part in another section that is entered by a plain jump, and has no frame. It needs the flags, and a word below
   the stack pointer. Without symbols it looks like a function that is called. */
long zone(long n);
__asm__(
	".text\n"
	".globl zone\n"
	".type zone, @function\n"
	"zone:\n"
	".cfi_startproc\n"
	"movq %rdi, -8(%rsp)\n"
	"movq %rdi, -120(%rsp)\n"
	"cmpq $50, %rdi\n"
	"jmp zone_part\n"
	".cfi_endproc\n"
	".size zone, .-zone\n"
	".section .text.unlikely, \"ax\"\n"
	"zone_part:\n"
	".cfi_startproc\n"
	"movl $0, %eax\n"
	"setg %al\n"
	"addq -8(%rsp), %rax\n"
	"addq -120(%rsp), %rax\n"
	"ret\n"
	".cfi_endproc\n"
	".text\n");

long (*volatile table[])(long) = { leaf, tail };

int main(int count, char **words)
{
	long rounds = count > 1 ? atol(words[1]) : 10;
	for (long n = 0; n < rounds; n++) {
		CHECK(twice(n) == 6 * n + 3);
		CHECK(tail(n) == 3 * n + 6);
		CHECK(unlikely(n) == n);
		CHECK(table[n & 1](n) == 3 * n + (n & 1) * 6);
		CHECK(zone(n) == 2 * n + (n > 50));
	}
	CHECK(recursive(3) == 3 * 12 + 3 * 3);
	puts("OK");
	return 0;
}
