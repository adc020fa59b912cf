/* Calls that end in every possible way, for return probes that replace the return address.
 *
 *     calls MODE [number]
 *
 * At its end the program clears the stack below main, says `done`, and waits for a line. */
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include "check.h"

static uint64_t checksum = MIX_START;
static _Atomic long called, returned;

/* Clears the stack below this frame, so that no trace of former calls remains. */
PROBED static void clear_stack(void)
{
	volatile char bytes[200000];
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = 0;
}

/* ---- recursion ---- */
PROBED long call_deep(long depth)
{
	called++;
	long result = depth == 0 ? 1 : call_deep(depth - 1) + depth;
	DO_AFTER_CALL(result);
	returned++;
	return result;
}

/* ---- left by longjmp ---- */
static __thread jmp_buf home;
PROBED long call_jump(long depth, long land)
{
	called++;
	if (depth == 0 && land)
		longjmp(home, 1);
	long result = depth == 0 ? 0 : call_jump(depth - 1, land) + 1;
	DO_AFTER_CALL(result);
	returned++;
	return result;
}

/* ---- threads that end inside ---- */
enum ending { EXIT, CANCEL, RAW };
PROBED long call_end(long depth, enum ending ending)
{
	called++;
	long result = 0;
	if (depth > 0) {
		result = call_end(depth - 1, ending) + 1;
	} else if (ending == EXIT) {
		pthread_exit((void *)7);
	} else if (ending == CANCEL) {
		pthread_cancel(pthread_self());
		pthread_testcancel();
	}
	DO_AFTER_CALL(result);
	returned++;
	return result;
}

static _Atomic long cleaned;
static void clean(void *argument) { cleaned += (long)argument; }

static void *thread_of_end(void *argument)
{
	pthread_cleanup_push(clean, (void *)1);
	call_end(9, (enum ending)(long)argument);
	pthread_cleanup_pop(0);
	return 0;
}

static void ends(long rounds)
{
	for (long round = 0; round < rounds; round++) {
		enum ending ending = round % 2 ? EXIT : CANCEL;
		pthread_t thread;
		void *result;
		CHECK(pthread_create(&thread, 0, thread_of_end, (void *)(long)ending) == 0);
		CHECK(pthread_join(thread, &result) == 0);
		CHECK(result == (ending == EXIT ? (void *)7 : PTHREAD_CANCELED));
	}
	CHECK(cleaned == rounds);
}

/* ---- signals on an alternate stack, which lies inside of a frame above ---- */
static volatile long handled;
PROBED long call_in_handler(long value) { called++; returned++; handled++; return value * 2; }
static sigjmp_buf out_of_handler;
static void handler(int signal)
{
	checksum = mix(checksum, (uint64_t)call_in_handler(signal));
	call_deep(5);
	if (handled % 3 == 0)
		siglongjmp(out_of_handler, 1);
}
PROBED long call_raise(long depth)
{
	called++;
	long result = 0;
	if (depth == 0)
		CHECK(raise(SIGUSR1) == 0);
	else
		result = call_raise(depth - 1) + 1;
	DO_AFTER_CALL(result);
	returned++;
	return result;
}
static void signals(long rounds)
{
	static char memory[1 << 16];
	stack_t stack = { .ss_sp = memory, .ss_size = sizeof(memory) };
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
	CHECK(sigaltstack(&stack, 0) == 0 && sigaction(SIGUSR1, &action, 0) == 0);
	for (long round = 0; round < rounds; round++)
		if (sigsetjmp(out_of_handler, 1) == 0)
			CHECK(call_raise(4) == 4);
	CHECK(handled == rounds);
}

/* ---- fork inside ---- */
PROBED long call_fork(long depth)
{
	called++;
	long result;
	if (depth == 0) {
		result = fork();
		CHECK(result >= 0);
	} else {
		result = call_fork(depth - 1);
	}
	DO_AFTER_CALL(result);
	returned++;
	return result;
}
static void forks(long rounds)
{
	for (long round = 0; round < rounds; round++) {
		long before = returned, child = call_fork(6);
		CHECK(returned == before + 7);
		if (child == 0) {
			/* The child makes calls of its own, loads an unwinder only now, and makes threads. */
			CHECK(call_deep(20) == 211);
			void *frames[16];
			CHECK(backtrace(frames, 16) > 1);
			_exit(40 + (int)round % 10);
		}
		int status;
		CHECK(waitpid((pid_t)child, &status, 0) == child && WIFEXITED(status));
		CHECK(WEXITSTATUS(status) == 40 + (int)round % 10);
	}
}

/* ---- the child leaves its parent's frames by pthread_exit, and its unwinder is not loaded yet ---- */
PROBED long call_fork_and_end(long depth)
{
	called++;
	long result;
	if (depth == 0) {
		result = fork();
		if (result == 0)
			pthread_exit(0);
	} else {
		result = call_fork_and_end(depth - 1);
	}
	DO_AFTER_CALL(result);
	returned++;
	return result;
}
static void fork_ends(long rounds)
{
	for (long round = 0; round < rounds; round++) {
		long child = call_fork_and_end(3);
		int status;
		CHECK(waitpid((pid_t)child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
}

/* ---- coroutines: calls interleave, and are resumed by another thread ---- */
enum { COROUTINES = 8, STACK = 1 << 16 };
static ucontext_t contexts[COROUTINES];
static ucontext_t callers[2];
static long results[COROUTINES];
static __thread long self;
static char stacks[COROUTINES][STACK];

PROBED static long thread_number(void) { return self; }
PROBED long call_switch(long depth, long number)
{
	called++;
	long result = depth == 0 ? number : call_switch(depth - 1, number) + 1;
	CHECK(swapcontext(&contexts[number], &callers[thread_number()]) == 0);
	DO_AFTER_CALL(result);
	returned++;
	return result;
}
static void coroutine(int number)
{
	results[number] = call_switch(9, number);
	CHECK(swapcontext(&contexts[number], &callers[thread_number()]) == 0);
}
static void resume(long number) { CHECK(swapcontext(&callers[self], &contexts[number]) == 0); }
static void start(long number)
{
	CHECK(getcontext(&contexts[number]) == 0);
	contexts[number].uc_stack.ss_sp = stacks[number];
	contexts[number].uc_stack.ss_size = STACK;
	contexts[number].uc_link = 0;
	makecontext(&contexts[number], (void (*)(void))coroutine, 1, (int)number);
}
static pthread_barrier_t barrier;
static long migrating;
static void *switcher(void *argument)
{
	self = (long)argument;
	/* Each coroutine switches back ten times, and then ends. In between, this thread makes calls of its own. */
	for (long step = 0; step < 11; step++) {
		for (long number = 0; number < COROUTINES; number++)
			if (!migrating || (number + step) % 2 == self) {
				resume(number);
				CHECK(call_deep(3) == 7);
			}
		if (migrating)
			pthread_barrier_wait(&barrier);
	}
	return 0;
}
static void coroutines(long rounds, long threads)
{
	migrating = threads == 2;
	for (long round = 0; round < rounds; round++) {
		pthread_barrier_init(&barrier, 0, 2);
		for (long number = 0; number < COROUTINES; number++) {
			results[number] = 0;
			start(number);
		}
		pthread_t other;
		if (migrating)
			CHECK(pthread_create(&other, 0, switcher, (void *)1) == 0);
		switcher((void *)0);
		if (migrating)
			pthread_join(other, 0);
		for (long number = 0; number < COROUTINES; number++)
			CHECK(results[number] == number + 9);
	}
}

/* ---- many calls at once, while the tracer comes and goes ---- */
PROBED long call_wait(long depth)
{
	called++;
	long result = 1;
	if (depth > 0) {
		result = call_wait(depth - 1) + depth;
	} else {
		printf("inside\n");
		wait_for_line();
	}
	DO_AFTER_CALL(result);
	returned++;
	return result;
}

/* ---- code that reads the stack ---- */
PROBED long call_trace(long depth)
{
	called++;
	long result = 0;
	if (depth > 0) {
		result = call_trace(depth - 1) + 1;
	} else {
		void *frames[64];
		int count = backtrace(frames, 64);
		CHECK(count >= 12);
		for (int i = 0; i < 12; i++) {
			Dl_info information;
			CHECK(dladdr(frames[i], &information) != 0);
		}
		checksum = mix(checksum, (uint64_t)count);
	}
	DO_AFTER_CALL(result);
	returned++;
	return result;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	const char *mode = argc > 1 ? argv[1] : "deep";
	long count = number(argc, argv, 2, 10);
	if (!strcmp(mode, "deep")) {
		for (long round = 0; round < 10; round++)
			CHECK(call_deep(count) == 1 + count * (count + 1) / 2);
	} else if (!strcmp(mode, "jump")) {
		for (volatile long round = 0; round < count; round++) {
			if (setjmp(home) == 0)
				call_jump(round % 40, 1);
			CHECK(call_jump(round % 7, 0) == round % 7);
		}
	} else if (!strcmp(mode, "ends")) {
		ends(count);
	} else if (!strcmp(mode, "signals")) {
		signals(count);
	} else if (!strcmp(mode, "forks")) {
		forks(count);
	} else if (!strcmp(mode, "fork_ends")) {
		fork_ends(count);
	} else if (!strcmp(mode, "coroutines")) {
		coroutines(count, 1);
	} else if (!strcmp(mode, "migrations")) {
		coroutines(count, 2);
	} else if (!strcmp(mode, "wait")) {
		CHECK(call_wait(count - 1) == 1 + count * (count - 1) / 2);
	} else if (!strcmp(mode, "trace")) {
		for (long round = 0; round < count; round++)
			CHECK(call_trace(9) == 9);
	} else {
		check_failed(__FILE__, __LINE__, mode);
	}
	clear_stack();
	printf("called %ld\nreturned %ld\n", (long)called, (long)returned);
	if (check_wait) {
		printf("done\n");
		wait_for_line();
	}
	return finish(checksum);
}
