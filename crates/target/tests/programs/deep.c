/* Sleeps with its stack pointer at the very end of the main stack: the page below is not there yet. */
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static uintptr_t bottom(void)
{
	char line[200];
	unsigned long start = 0, end;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx %*s %*s %*s %*s [stack]", &start, &end) == 2 && (uintptr_t)line > start && (uintptr_t)line < end)
			break;
	fclose(maps);
	return start;
}

int main(void)
{
	uintptr_t pointer = (bottom() & -4096UL) + 16;
	long result;
	if (write(1, "ready\n", 6) != 6)
		return 1;
	char byte;
	asm volatile("mov %%rsp, %%rbx\n\tmov %[pointer], %%rsp\n\tsyscall\n\tmov %%rbx, %%rsp"
		     : "=a"(result) : "0"(0), "D"(0), "S"(&byte), "d"(1), [pointer] "r"(pointer) : "rbx", "rcx", "r11", "memory");
	return result == 1 ? 0 : 9;
}
