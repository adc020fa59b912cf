/* A function that reads memory by its second instruction, at loads_here: it faults there, when the
 * caller wants it to. */
#ifndef LOADS_H
#define LOADS_H

#include <stdint.h>

uint64_t loads(const uint64_t *from);
extern const char loads_here[];
__asm__(".text\n.globl loads\n.type loads, @function\nloads:\n\tmovl $1, %eax\nloads_here:\n\tmovq (%rdi), %rax\n"
	"\taddq $1, %rax\n\tret\n.size loads, . - loads\n");

#endif
