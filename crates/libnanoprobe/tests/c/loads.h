/* A function whose second instruction, at loads_here, reads memory. The caller can make it fault there. */
#ifndef LOADS_H
#define LOADS_H

#include <stdint.h>

uint64_t loads(const uint64_t *from);
extern const char loads_here[];
__asm__(".text\n.globl loads\n.type loads, @function\nloads:\n\tmovl $1, %eax\nloads_here:\n\tmovq (%rdi), %rax\n"
	"\taddq $1, %rax\n\tret\n.size loads, . - loads\n");

#endif
