/* Makes a call by `int $0x80`: a kernel without 32-bit system calls ends the program by SIGSEGV. */
#include <unistd.h>

int main(void)
{
	long result;
	/* Older kernels do not keep r8 to r11. */
	__asm__ volatile("int $0x80" : "=a"(result) : "0"(20L) : "r8", "r9", "r10", "r11", "memory");
	return result != getpid();
}
