/* A handler, in libraries that differ in one instruction of it. */
struct np_probe;
struct np_regs;
int handler(struct np_probe *probe, struct np_regs *regs);
__asm__(".text\n.globl handler\n.type handler, @function\nhandler: xor %eax, %eax\n"
#ifdef LOUD
	" pcmpeqd %xmm3, %xmm3\n"
#else
	" nopw (%rax)\n"
#endif
	" ret\n.size handler, . - handler\n");
