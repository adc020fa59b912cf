/* Measures how much of a stack is used below a probed function. The stack is painted, the function is called at a known
 * place of it, and the bytes that are no longer painted are counted. The first call is the thread's first hit. With
 * AS_GO the program looks like Go's.
 *
 * bytes are counted from the stack pointer at the function's entry, where the return address is. */
#include <signal.h>
#include <sys/auxv.h>

#include "check.h"

#ifdef AS_GO
__attribute__((section(".note.go.buildid"), used)) static const uint32_t go[] = { 4, 4, 4, 0x6f47, 0 };
#endif

enum { STACK_BYTES = 65536, BELOW = 60000, PAINT = 0x5a };

static _Alignas(64) unsigned char stack[STACK_BYTES];
/* The program's own stack while `painted` runs on the other. */
void *painted_from;

PROBED uint64_t painted(const char *text, uint64_t number)
{
	return number * 3 + (uint64_t)text[0];
}

__attribute__((noipa)) uint64_t call_on(void *top, const char *text, uint64_t number);
__asm__("call_on: mov %rsp, painted_from(%rip); mov %rdi, %rsp; mov %rsi, %rdi; mov %rdx, %rsi\n"
        "	call painted\n"
        "	mov painted_from(%rip), %rsp; ret\n");

static unsigned long measure(uint64_t number)
{
	memset(stack, PAINT, sizeof stack);
	CHECK(call_on(stack + BELOW + 8, "text", number) == number * 3 + 't');
	for (unsigned long byte = 0; byte < BELOW; byte++)
		if (stack[byte] != PAINT)
			return BELOW - byte;
	return 0;
}

int main(int argc, char **argv)
{
	static char alternate[65536];
	stack_t on = { .ss_sp = alternate, .ss_size = sizeof alternate };
	begin(&argc, argv);
	if (argc > 1 && strcmp(argv[1], "alternate") == 0)
		CHECK(sigaltstack(&on, 0) == 0);
	unsigned long first = measure(1), most = 0;
	for (uint64_t number = 2; number < 50; number++) {
		unsigned long bytes = measure(number);
		most = bytes > most ? bytes : most;
	}
	printf("calls 49\nfirst %lu\nmost %lu\nsignal %lu\nOK\n", first, most, getauxval(AT_MINSIGSTKSZ));
	return 0;
}
