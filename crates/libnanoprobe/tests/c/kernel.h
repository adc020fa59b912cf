/* A call of rt_sigaction that reaches the kernel: the library intercepts all such calls in the code of files. This
 * call is made in memory that belongs to no file. */
#ifndef KERNEL_H
#define KERNEL_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* The kernel's action for a signal. 0, or a negative error. */
static inline long kernel_action(int signal, void *action)
{
	static const unsigned char text[] = {
		0x48, 0x89, 0xf8,       /* mov rax, rdi */
		0x48, 0x89, 0xf7,       /* mov rdi, rsi */
		0x48, 0x89, 0xd6,       /* mov rsi, rdx */
		0x48, 0x89, 0xca,       /* mov rdx, rcx */
		0x4d, 0x89, 0xc2,       /* mov r10, r8 */
		0x0f, 0x05, 0xc3,       /* syscall; ret */
	};
	long (*call)(long, long, const void *, void *, long);
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		abort();
	memcpy(page, text, sizeof text);
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC))
		abort();
	memcpy(&call, &page, sizeof call);
	long result = call(SYS_rt_sigaction, signal, NULL, action, 8);
	munmap(page, 4096);
	return result;
}

#endif
