/* A handler, and how deep in the stack it ran. The two libraries differ in one instruction of the handler. */
#include <stdint.h>

struct np_probe;
struct np_regs;
int handler(struct np_probe *probe, struct np_regs *regs);
uint64_t deep(void);
uint64_t depth __attribute__((visibility("hidden")));

__asm__(".text\n.globl handler\n.type handler, @function\nhandler: mov %rsi, %rax\n sub %rsp, %rax\n mov %rax, depth(%rip)\n"
#ifdef LOUD
	" pcmpeqd %xmm3, %xmm3\n"
#else
	" nopw (%rax)\n"
#endif
	" xor %eax, %eax\n ret\n.size handler, . - handler\n");

uint64_t deep(void)
{
	return depth;
}
