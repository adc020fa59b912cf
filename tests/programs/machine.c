/* The machine's whole state across probed functions: integer registers, flags, the red zone, xmm, ymm and zmm, the mask
 * registers, x87 and MXCSR.
 * machine [rounds]
 *
 * A caller in assembly fills a state, calls a function that touches nothing, and stores the state: all must be as
 * filled, also what the ABI lets a callee destroy. Probes may be at its entry and at its return. */
#include <cpuid.h>
#include "check.h"

struct integers { uint64_t rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15, flags; };

struct integers filled __attribute__((aligned(64))), seen __attribute__((aligned(64)));
uint8_t vectors_filled[32 * 64] __attribute__((aligned(64))), vectors_seen[32 * 64] __attribute__((aligned(64)));
uint64_t masks_filled[8], masks_seen[8];
uint32_t mxcsr_filled, mxcsr_seen;
uint16_t control_seen, status_seen;

void untouching(void);           /* nop; nop; nop; nop; ret */
void untouching_short(void);     /* ret */
void call_with_integers(void (*)(void));
void call_with_xmm(void (*)(void));
void call_with_ymm(void (*)(void));
void call_with_zmm(void (*)(void));
long red_zone_leaf(long);
long red_zone_loop(long);
long carry_out(long);
long call_carry_out(long);

/* clang-format off */
#define R16(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define R32(X) R16(X) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
#define LOAD_XMM(n) " movups vectors_filled+16*" #n "(%rip), %xmm" #n "\n"
#define STORE_XMM(n) " movups %xmm" #n ", vectors_seen+16*" #n "(%rip)\n"
#define LOAD_YMM(n) " vmovups vectors_filled+32*" #n "(%rip), %ymm" #n "\n"
#define STORE_YMM(n) " vmovups %ymm" #n ", vectors_seen+32*" #n "(%rip)\n"
#define LOAD_ZMM(n) " vmovups vectors_filled+64*" #n "(%rip), %zmm" #n "\n"
#define STORE_ZMM(n) " vmovups %zmm" #n ", vectors_seen+64*" #n "(%rip)\n"
#define K8(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define LOAD_K(n) " kmovw masks_filled+8*" #n "(%rip), %k" #n "\n"
#define STORE_K(n) " kmovw %k" #n ", masks_seen+8*" #n "(%rip)\n"
#define FUNCTION(name) ".p2align 4\n.globl " name "\n.type " name ", @function\n" name ":\n"
#define END(name) ".size " name ", . - " name "\n"
#define EACH(X) X(rbx, 8) X(rcx, 16) X(rdx, 24) X(rsi, 32) X(rdi, 40) X(rbp, 48) X(r8, 56) X(r9, 64) X(r10, 72) \
	X(r11, 80) X(r12, 88) X(r13, 96) X(r14, 104) X(r15, 112)
#define LOAD_REG(r, offset) " movq filled+" #offset "(%rip), %" #r "\n"
#define STORE_REG(r, offset) " movq %" #r ", seen+" #offset "(%rip)\n"

__asm__(".text\n"
	FUNCTION("untouching") " nop\n nop\n nop\n nop\n nop\n ret\n" END("untouching")
	FUNCTION("untouching_short") " ret\n" END("untouching_short")
	FUNCTION("call_with_integers")
	" pushq %rbx\n pushq %rbp\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n pushq %rdi\n"
	EACH(LOAD_REG)
	" movq filled(%rip), %rax\n pushq filled+120(%rip)\n popfq\n"
	" call *(%rsp)\n"
	" movq %rax, seen(%rip)\n pushfq\n popq seen+120(%rip)\n cld\n"
	EACH(STORE_REG)
	" popq %rdi\n popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbp\n popq %rbx\n ret\n"
	END("call_with_integers")
	FUNCTION("call_with_xmm") " subq $8, %rsp\n" R16(LOAD_XMM)
	" fninit\n fld1\n fldpi\n fldl2e\n fldz\n"
	" call *%rdi\n"
	" fnstcw control_seen(%rip)\n fnstsw status_seen(%rip)\n stmxcsr mxcsr_seen(%rip)\n"
	" fstp %st(0)\n fstpt vectors_seen+256(%rip)\n fstpt vectors_seen+272(%rip)\n fstpt vectors_seen+288(%rip)\n"
	R16(STORE_XMM) " addq $8, %rsp\n ret\n" END("call_with_xmm")
	FUNCTION("call_with_ymm") " subq $8, %rsp\n" R16(LOAD_YMM)
	" call *%rdi\n" R16(STORE_YMM) " vzeroupper\n addq $8, %rsp\n ret\n" END("call_with_ymm")
	FUNCTION("call_with_zmm") " subq $8, %rsp\n" R32(LOAD_ZMM) K8(LOAD_K)
	" call *%rdi\n" R32(STORE_ZMM) K8(STORE_K) " vzeroupper\n addq $8, %rsp\n ret\n" END("call_with_zmm")
	/* All 128 bytes below the stack pointer are live from the second instruction to the return. */
	FUNCTION("red_zone_leaf") " leaq 1(%rdi), %rax\n"
	" movq %rax, -8(%rsp)\n movq %rax, -64(%rsp)\n movq %rax, -120(%rsp)\n movq %rax, -128(%rsp)\n"
	" xorl %eax, %eax\n addq -8(%rsp), %rax\n addq -64(%rsp), %rax\n addq -120(%rsp), %rax\n addq -128(%rsp), %rax\n ret\n"
	END("red_zone_leaf")
	/* Sums 1..n in the red zone; its loop goes back into the function's first bytes after the first instruction. */
	FUNCTION("red_zone_loop") " xorl %eax, %eax\n"
	"1: movq %rax, -128(%rsp)\n movq %rdi, -8(%rsp)\n addq -8(%rsp), %rax\n subq -128(%rsp), %rax\n"
	" addq -128(%rsp), %rax\n decq %rdi\n jnz 1b\n ret\n" END("red_zone_loop")
	/* Returns its result in the carry flag too, as assembly may. */
	FUNCTION("carry_out") " movq %rdi, %rax\n addq %rax, %rax\n ret\n" END("carry_out")
	FUNCTION("call_carry_out") " subq $8, %rsp\n call carry_out\n setc %al\n movzbl %al, %eax\n addq $8, %rsp\n ret\n"
	END("call_carry_out"));
/* clang-format on */

static uint64_t random_state = 88172645463325252UL;
static uint64_t random_word(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void fill(void *memory, size_t bytes)
{
	for (size_t i = 0; i < bytes / 8; i++)
		((uint64_t *)memory)[i] = random_word();
}

static void integers(void (*function)(void))
{
	/* CF PF AF ZF SF DF OF; IF and bit 1 are always set. */
	static const uint64_t flags[] = {0, 1, 4, 0x10, 0x40, 0x80, 0x400, 0x800, 0xcd5, 0x8d5, 0x4d5};
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		fill(&filled, sizeof filled);
		filled.flags = flags[i] | 0x202;
		memset(&seen, 0, sizeof seen);
		call_with_integers(function);
		CHECK(seen.flags == filled.flags);
		CHECK(memcmp(&seen, &filled, sizeof seen) == 0);
	}
}

static void vectors(void (*function)(void), int has_avx, int has_avx512)
{
	fill(vectors_filled, sizeof vectors_filled);
	memset(vectors_seen, 0, sizeof vectors_seen);
	/* Rounding down, and denormals are zero: a handler that computed with floats would be noticed. */
	uint32_t usual, wanted = 0x1f80 | 0x2000 | 0x40;
	__asm__ volatile("stmxcsr %0" : "=m"(usual));
	__asm__ volatile("ldmxcsr %0" : : "m"(wanted));
	call_with_xmm(function);
	__asm__ volatile("ldmxcsr %0" : : "m"(usual));
	CHECK(memcmp(vectors_seen, vectors_filled, 256) == 0);
	CHECK((mxcsr_seen & ~0x3fu) == wanted);
	CHECK(control_seen == 0x37f);
	CHECK((status_seen >> 11 & 7) == 4); /* four values on the x87 stack */
	long double log2e, pi, one;
	memcpy(&log2e, vectors_seen + 256, 10);
	memcpy(&pi, vectors_seen + 272, 10);
	memcpy(&one, vectors_seen + 288, 10);
	CHECK(one == 1.0L && (double)pi == 3.14159265358979323846 && (double)log2e == 1.44269504088896340736);
	if (has_avx) {
		memset(vectors_seen, 0, sizeof vectors_seen);
		call_with_ymm(function);
		CHECK(memcmp(vectors_seen, vectors_filled, 16 * 32) == 0);
	}
	if (has_avx512) {
		for (int i = 0; i < 8; i++)
			masks_filled[i] = random_word() & 0xffff;
		memset(masks_seen, 0, sizeof masks_seen);
		memset(vectors_seen, 0, sizeof vectors_seen);
		call_with_zmm(function);
		CHECK(memcmp(vectors_seen, vectors_filled, 32 * 64) == 0);
		CHECK(memcmp(masks_seen, masks_filled, sizeof masks_seen) == 0);
	}
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long rounds = number(argc, argv, 1, 1000);
	__builtin_cpu_init();
	int has_avx = __builtin_cpu_supports("avx") != 0, has_avx512 = __builtin_cpu_supports("avx512f") != 0;
	for (long round = 0; round < rounds; round++) {
		integers(untouching);
		integers(untouching_short);
		vectors(untouching, has_avx, has_avx512);
		vectors(untouching_short, has_avx, has_avx512);
		CHECK(red_zone_leaf(round) == 4 * (round + 1));
		CHECK(red_zone_loop(10) == 55);
		CHECK(call_carry_out(-1) == 1);
		CHECK(call_carry_out(1) == 0);
	}
	long calls = 12 + has_avx + has_avx512;
	printf("untouching %ld\nrounds %ld\nred_zone %ld\ncarry %ld\n", rounds * calls, rounds, rounds, rounds * 2);
	return finish(mix(MIX_START, random_state));
}
