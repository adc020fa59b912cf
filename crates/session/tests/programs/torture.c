/* Functions that are executed from every one of their instructions, in every way there is, while
 * they are patched and unpatched.
 *
 *   torture SPINNERS PARKED   prints `counts ADDRESS` of what its spinners count, a word each; where PARKED is not 0
 *                          `arrival ADDRESS TID` for each instruction; `ready`. Then obeys lines:
 *     frames               each parked thread takes a signal whose frame leads to its arrival; `parked` when all sleep
 *     release              they return from it; `released` when all results were right
 *     pause                `paused` when every spinner rests between two rounds; a round arrives everywhere three times
 *     resume               `resumed` when they go on
 *     arrived N            `arrived` when parked threads have come back N times in all
 *     stop                 ends: `calls N`, `OK`
 *
 * A thread is parked in a system call, and sleeps there whenever an answer is printed. A debugger or a
 * signal frame that moves it to its arrival leaves the stack as it is there and sets eax to 1000, ecx and
 * edi to 0, the carry flag to 0. A wrong result ends the program with FAILED.
 *
 * Compiled with NEIGHBOURS it has other functions, in which nothing but a displaced neighbour makes
 * room for a patch. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* clang-format off */
#define FUNCTION(name) ".p2align 4\n.globl " name "\n.type " name ", @function\n" name ":\n"
#define END(name) ".size " name ", . - " name "\n"
#define SYMBOL(name) ".globl " name "\n.type " name ", @function\n" name ":\n"
/* Code longer than the reach of a short jump, with no long instruction and no padding. */
#define FAR(name) SYMBOL(name) " .rept 40\n leal 1(%rdi), %eax\n .endr\n ret\n" END(name)
/* The site is the four bytes at 8, and the neighbour is the instruction after it, at 12. No run covers two
 * instructions: a jump leads to the site, and branches lead to the neighbour and to the instruction after that. No pun
 * fits: its jump would end with the neighbour's first byte as the highest byte of the displacement, and so lead below
 * address 0, or to memory that take_the_place() has mapped. No jump can end with another jump's first byte, either,
 * because that leads to the same places. */
#define NEIGHBOUR(name, instruction)                                                                          \
	SYMBOL(name) " testl %edi, %edi\n js 2f\n js 3f\n jmp 1f\n 1: leaq 5(%rax), %rax\n 2: " instruction "\n" \
	" 3: addl %ecx, %eax\n ret\n" END(name)
__asm__(".text\n"
	/* Instruction boundaries at the bytes 2 and 4 of a jump. */
	FUNCTION("t_twos") " incl %eax\n incl %eax\n incl %eax\n incl %eax\n incl %eax\n incl %eax\n ret\n" END("t_twos")
	/* Instruction boundaries at the bytes 1, 2, 3 and 4 of a jump. */
	FUNCTION("t_ones") " cmc\n cmc\n cmc\n cmc\n cmc\n cmc\n sbbl %eax, %eax\n ret\n" END("t_ones")
	/* No instruction boundary within a jump. */
	FUNCTION("t_jump") " addl $0x11111111, %eax\n incl %eax\n addl $7, %eax\n ret\n" END("t_jump")
	/* A relative operand is displaced, and reaches out of the jump. */
	FUNCTION("t_long") " xorl %edx, %edx\n addq t_seven(%rip), %rax\n leal 3(%rax), %eax\n ret\n" END("t_long")
	/* A function that begins as compilers make it. Without its frame, a thread can only arrive at its first
	 * instruction. */
	FUNCTION("t_frame") " pushq %rbp\n movq %rsp, %rbp\n leal 5(%rax,%rdi), %eax\n popq %rbp\n ret\n" END("t_frame")
	/* A call, which a pun leaves in place. */
	FUNCTION("t_pun") " incl %eax\n call go_add\n incl %eax\n ret\n" END("t_pun")
	/* Stores its result, for arrivals that lose the returned value. */
	FUNCTION("t_store") " incl %eax\n incl %eax\n incl %eax\n movl %eax, (%rdi)\n ret\n" END("t_store")
	/* Instructions that the trap's handler emulates: branches taken and not taken, a jump, endbr64, nops. */
	FUNCTION("t_forms") " endbr64\n nop\n testl %edi, %edi\n jz 1f\n ud2\n 1: incl %eax\n jc 2f\n jmp 3f\n ud2\n"
	" 2: nop\n 3: incl %eax\n ret\n" END("t_forms")
#ifdef NEIGHBOURS
	FAR("far_0") NEIGHBOUR("n_six", "addl $0x11111, %ecx")
	FAR("far_1") NEIGHBOUR("n_seven", "leaq 0x22222(%rcx), %rcx")
	FAR("far_2") NEIGHBOUR("n_ten", "movabsq $0x33333, %rcx")
	/* Functions like these, for probes at the neighbours, too. */
	FAR("far_3") NEIGHBOUR("n_own_six", "addl $0x11111, %ecx")
	FAR("far_4") NEIGHBOUR("n_own_seven", "leaq 0x22222(%rcx), %rcx")
	FAR("far_5") NEIGHBOUR("n_own_ten", "movabsq $0x33333, %rcx")
	FAR("far_6")
#endif
	".skip 4096, 0xcc\n"
	FUNCTION("go_add") " addl $100, %eax\n ret\n" END("go_add")
	/* int go_call(void *where, int eax, int carry), by a call, a jump and a return. */
	FUNCTION("go_call") " pushq %rbx\n movq %rdi, %rbx\n xorl %edi, %edi\n xorl %ecx, %ecx\n movl %esi, %eax\n shrl $1, %edx\n"
	" call *%rbx\n popq %rbx\n ret\n" END("go_call")
	FUNCTION("go_jump") " movq %rdi, %r11\n xorl %edi, %edi\n xorl %ecx, %ecx\n movl %esi, %eax\n shrl $1, %edx\n jmp *%r11\n" END("go_jump")
	FUNCTION("go_return") " pushq %rdi\n xorl %edi, %edi\n xorl %ecx, %ecx\n movl %esi, %eax\n shrl $1, %edx\n ret\n" END("go_return")
	/* Sleeps for ever. A thread that is moved elsewhere returns from there, with the eax that it has then. */
	FUNCTION("go_park") "1: movl $34, %eax\n syscall\n jmp 1b\n" END("go_park")
	FUNCTION("go_leave") " movl $-1, %eax\n ret\n" END("go_leave")
	".section .rodata\n.p2align 3\nt_seven: .quad 7\n.text\n");
/* clang-format on */

extern char t_twos[], t_ones[], t_jump[], t_long[], t_frame[], t_pun[], t_store[], t_forms[], go_leave[];
int go_call(const void *where, int eax, int carry);
int go_jump(const void *where, int eax, int carry);
int go_return(const void *where, int eax, int carry);
int go_park(void);

struct arrival {
	char *where;
	int adds; /* to eax; -1: eax is as in t_ones, `flips` instructions later */
	int flips;
};

#define TWO(k) { t_twos + 2 * (k), 6 - (k), 0 }
#define ONE(k) { t_ones + (k), -1, 6 - (k) }
#ifdef NEIGHBOURS
extern char n_six[], n_seven[], n_ten[], n_own_six[], n_own_seven[], n_own_ten[];
/* Arrivals before the site, at the site, at the neighbour, and after the neighbour. */
#define ALL_OF(name, bytes, adds)                                                                             \
	{ name, 5 + (adds), 0 }, { name + 8, 5 + (adds), 0 }, { name + 12, adds, 0 }, { name + 12 + (bytes), 0, 0 }
static const struct arrival arrivals[] = {
	ALL_OF(n_six, 6, 0x11111), ALL_OF(n_seven, 7, 0x22222), ALL_OF(n_ten, 10, 0x33333),
	ALL_OF(n_own_six, 6, 0x11111), ALL_OF(n_own_seven, 7, 0x22222), ALL_OF(n_own_ten, 10, 0x33333),
};
#else
static const struct arrival arrivals[] = {
	TWO(0), TWO(1), TWO(2), TWO(3), TWO(4), TWO(5), TWO(6),
	ONE(0), ONE(1), ONE(2), ONE(3), ONE(4), ONE(5), ONE(6),
	{ t_jump, 0x11111119, 0 }, { t_jump + 5, 8, 0 }, { t_jump + 7, 7, 0 },
	{ t_long, 10, 0 }, { t_long + 2, 10, 0 }, { t_long + 9, 3, 0 },
	{ t_frame, 5, 0 },
	{ t_pun, 102, 0 }, { t_pun + 2, 101, 0 }, { t_pun + 7, 1, 0 },
	{ t_forms, 2, 0 }, { t_forms + 4, 2, 0 }, { t_forms + 5, 2, 0 }, { t_forms + 11, 2, 0 }, { t_forms + 13, 1, 0 },
	{ t_forms + 15, 1, 0 }, { t_forms + 19, 1, 0 }, { t_forms + 20, 1, 0 }, { t_forms + 22, 0, 0 },
};
#endif
enum { ARRIVALS = sizeof(arrivals) / sizeof(arrivals[0]) };

static volatile int stopping, releases, in_handler, came_back, pausing, paused;
enum { SPINNERS_MAX = 64 };
/* Of each spinner, how often it has called, jumped and returned to an arrival. */
static volatile long counts[SPINNERS_MAX];
static pthread_t parked[ARRIVALS];
static volatile int tids[ARRIVALS];

static int result_of(const struct arrival *arrival, int eax, int carry)
{
	return arrival->adds == -1 ? -((carry + arrival->flips) & 1) : eax + arrival->adds;
}

static void check(const struct arrival *arrival, const char *way, int found, int right)
{
	if (found == right)
		return;
	printf("FAILED: %s to the first arrival%+ld: %d instead of %d\n", way, (long)(arrival->where - arrivals[0].where), found, right);
	fflush(stdout);
	_exit(1);
}

static void by_context(int offset)
{
	char stack[32768];
	ucontext_t here, there;
	volatile int stored = -1;
	getcontext(&there);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = sizeof(stack);
	there.uc_link = &here;
	makecontext(&there, (void (*)(void))(t_store + 2 * offset), 1, &stored);
	/* It begins with eax 0. */
	swapcontext(&here, &there);
	struct arrival arrival = { t_store + 2 * offset, 3 - offset, 0 };
	check(&arrival, "swapcontext", stored, 3 - offset);
}

static void *spin(void *argument)
{
	volatile long *count = argument;
	for (unsigned round = 0; !stopping; round++) {
		if (pausing) {
			__atomic_fetch_add(&paused, 1, __ATOMIC_SEQ_CST);
			while (pausing)
				usleep(100);
			__atomic_fetch_sub(&paused, 1, __ATOMIC_SEQ_CST);
		}
		for (int i = 0; i < ARRIVALS; i++) {
			const struct arrival *arrival = &arrivals[i];
			int carry = round & 1, eax = (int)(round & 0xffff);
			check(arrival, "call", go_call(arrival->where, eax, carry), result_of(arrival, eax, carry));
			check(arrival, "jump", go_jump(arrival->where, eax, carry), result_of(arrival, eax, carry));
			check(arrival, "return", go_return(arrival->where, eax, carry), result_of(arrival, eax, carry));
			*count += 3;
		}
		by_context((int)(round % 3));
	}
	return NULL;
}

static void *park(void *argument)
{
	const struct arrival *arrival = argument;
	int index = (int)(arrival - arrivals);
	tids[index] = (int)syscall(SYS_gettid);
	for (;;) {
		int found = go_park();
		if (found == -1 && stopping)
			return NULL;
		check(arrival, "park", found, result_of(arrival, 1000, 0));
		__atomic_fetch_add(&came_back, 1, __ATOMIC_SEQ_CST);
	}
}

static void on_signal(int signal, siginfo_t *information, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	(void)information;
	if (signal == SIGUSR2) {
		registers[REG_RIP] = (greg_t)go_leave;
		return;
	}
	for (int i = 0; i < ARRIVALS; i++)
		if (pthread_equal(parked[i], pthread_self()))
			registers[REG_RIP] = (greg_t)arrivals[i].where;
	registers[REG_RAX] = 1000;
	registers[REG_RCX] = 0;
	registers[REG_RDI] = 0;
	registers[REG_EFL] &= ~1L;
	int release = releases;
	__atomic_fetch_add(&in_handler, 1, __ATOMIC_SEQ_CST);
	while (releases == release)
		usleep(100);
	__atomic_fetch_sub(&in_handler, 1, __ATOMIC_SEQ_CST);
}

static void wait_until(const volatile int *value, int wanted)
{
	while (__atomic_load_n(value, __ATOMIC_SEQ_CST) != wanted)
		usleep(100);
}

static int sleeps(int tid)
{
	char path[64], text[512];
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	FILE *file = fopen(path, "r");
	if (!file)
		exit(4);
	size_t size = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[size] = 0;
	/* The state stands after the name, which may hold a parenthesis. */
	const char *state = strrchr(text, ')');
	return state && state[1] == ' ' && state[2] == 'S';
}

/* Waits until all parked threads sleep in their system call again. A thread that has come back, but has no processor
 * yet, stands in front of the call. If it were moved to its arrival from there, it would return into another frame. */
static void wait_until_parked(int parkers)
{
	for (int i = 0; i < parkers; i++)
		while (!sleeps(tids[i]))
			usleep(100);
}

#ifdef NEIGHBOURS
/* Takes the memory to which a jump over a site leads if its last byte is 0x48, the REX prefix of many instructions. */
static void take_the_place(void)
{
	void *wanted = (void *)0x48000000;
	if (mmap(wanted, 0x2000000, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != wanted)
		_exit(3);
}
#endif

int main(int argc, char **argv)
{
	int spinners = argc > 1 ? atoi(argv[1]) : 2, expected = 0;
	if (spinners > SPINNERS_MAX)
		spinners = SPINNERS_MAX;
	int parkers = argc > 2 && atoi(argv[2]) ? ARRIVALS : 0;
	pthread_t threads[SPINNERS_MAX];
#ifdef NEIGHBOURS
	take_the_place();
#endif
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	printf("counts %lx\n", (long)counts);
	for (int i = 0; i < parkers; i++) {
		if (pthread_create(&parked[i], NULL, park, (void *)&arrivals[i]))
			return 2;
		while (!tids[i])
			usleep(100);
		printf("arrival %lx %d\n", (long)arrivals[i].where, tids[i]);
	}
	for (int i = 0; i < spinners; i++)
		if (pthread_create(&threads[i], NULL, spin, (void *)&counts[i]))
			return 2;
	wait_until_parked(parkers);
	printf("ready\n");
	char line[64];
	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "frames\n") == 0) {
			for (int i = 0; i < parkers; i++)
				pthread_kill(parked[i], SIGUSR1);
			wait_until(&in_handler, parkers);
			printf("parked\n");
		} else if (strcmp(line, "release\n") == 0) {
			expected += parkers;
			releases++;
			wait_until(&came_back, expected);
			wait_until_parked(parkers);
			printf("released\n");
		} else if (strncmp(line, "arrived ", 8) == 0) {
			expected += atoi(line + 8);
			wait_until(&came_back, expected);
			wait_until_parked(parkers);
			printf("arrived\n");
		} else if (strcmp(line, "pause\n") == 0) {
			pausing = 1;
			wait_until(&paused, spinners);
			printf("paused\n");
		} else if (strcmp(line, "resume\n") == 0) {
			pausing = 0;
			/* No spinner rests any more when the next pause begins. */
			wait_until(&paused, 0);
			printf("resumed\n");
		} else {
			break;
		}
	}
	stopping = 1;
	for (int i = 0; i < spinners; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < parkers; i++) {
		pthread_kill(parked[i], SIGUSR2);
		pthread_join(parked[i], NULL);
	}
	printf("OK\n");
	return 0;
}
