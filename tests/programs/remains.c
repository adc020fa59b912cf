/* Two signal frames on a stack whose remains a waiting thread has in its own frame. A handler of the program's that
 * has returned left one; a handler of a probe that met a bad address left the other. The program prints OK. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, DEPTH = 8 << 10, WAITING = 32 << 10 };

static volatile char *page;
static volatile int handled;

__attribute__((noinline)) void called(const char *name)
{
	__asm__ volatile("" : : "r"(name) : "memory");
}

static void on_fault(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)context;
	if (information->si_addr != (void *)page || mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE))
		_exit(3);
	handled++;
}

__attribute__((noinline)) static void deep(int writes)
{
	char room[DEPTH];
	__asm__ volatile("" : : "r"(room) : "memory");
	if (writes)
		page[0] = 7;
	else
		called((const char *)8);
	__asm__ volatile("" : : "r"(room) : "memory");
}

/* Waits in a frame that still holds the stack's old contents: nothing is written into the array. */
__attribute__((noinline)) static void waiting(const char *word)
{
	char room[WAITING];
	int read;
	__asm__ volatile("" : : "r"(room) : "memory");
	printf("%s\n", word);
	fflush(stdout);
	while ((read = getchar()) != '\n' && read != EOF)
		;
	__asm__ volatile("" : : "r"(room) : "memory");
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	page = mmap(0, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED || sigaction(SIGSEGV, &action, 0))
		return 2;
	waiting("working");
	for (int writes = 0; writes < 2; writes++) {
		called("name");
		deep(writes);
		waiting(writes ? "handled" : "read");
	}
	puts(handled == 1 && page[0] == 7 ? "OK" : "wrong");
	return 0;
}
