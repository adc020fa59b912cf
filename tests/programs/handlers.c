/* Signal handlers of all kinds, and how often each signal is delivered to one.
 * handlers [rounds]         installed before and after --wait, replaced, reset, nested, left by siglongjmp, on an
 *                           alternate stack, in threads, for its own faults; also called directly, and jumped to
 * handlers storm [signals]  two timers and a thread interrupt everything
 * handlers swap [signals]   a thread replaces the handler while the signal is handled
 * handlers ignored [rounds]  signals that the program ignores, of itself and of children, and others
 * handlers fork [rounds]    children handle signals, and one installs a handler of its own */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include "check.h"

static volatile long delivered[65], informed, faults[65];
static volatile long direct_calls, jumped_to, nested, onstack, stopping, in_children;
static char *page;
static sigjmp_buf way_out;

static void count(long volatile *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* SIGUSR1, before --wait; also called directly. */
PROBED void plain(int signal)
{
	if (signal < 0)
		count(&direct_calls);
	else
		count(&delivered[signal]);
}

/* SIGUSR2, before --wait; of threads, too; also called directly. */
PROBED void with_information(int signal, siginfo_t *information, void *context)
{
	if (!context) {
		count(&direct_calls);
		return;
	}
	CHECK(information->si_signo == signal && information->si_pid == getpid());
	count(&delivered[signal]);
	count(&informed);
}

/* SIGHUP, before --wait, on the alternate stack. */
PROBED void on_alternate_stack(int signal, siginfo_t *information, void *context)
{
	stack_t stack;
	CHECK(sigaltstack(NULL, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) && context);
	CHECK(information->si_value.sival_int == 4711);
	count(&delivered[signal]);
	count(&informed);
	count(&onstack);
}

/* SIGWINCH, after --wait. Another signal is delivered within it. */
PROBED void outer(int signal)
{
	count(&delivered[signal]);
	long before = delivered[SIGUSR1];
	raise(SIGUSR1);
	CHECK(delivered[SIGUSR1] == before + 1);
	count(&nested);
}

/* SIGURG: SA_RESETHAND. */
PROBED void once(int signal, siginfo_t *information, void *context)
{
	struct sigaction now;
	CHECK(sigaction(signal, NULL, &now) == 0 && now.sa_handler == SIG_DFL && information && context);
	count(&delivered[signal]);
	count(&informed);
}

/* SIGIO: each replaces the other. */
PROBED void first(int signal)
{
	count(&delivered[signal]);
}

PROBED void second(int signal, siginfo_t *information, void *context)
{
	CHECK(information->si_signo == signal && context);
	count(&delivered[signal]);
	count(&informed);
}

/* SIGTTIN: it had the handler to which `forward` jumps at its end. */
PROBED void forwarded(int signal, siginfo_t *information, void *context)
{
	CHECK(information->si_signo == signal && context);
	count(&jumped_to);
}

static void (*volatile older)(int, siginfo_t *, void *);

PROBED void forward(int signal, siginfo_t *information, void *context)
{
	count(&delivered[signal]);
	count(&informed);
	older(signal, information, context);
}

/* SIGPROF: left by siglongjmp. */
PROBED void leaving(int signal)
{
	count(&delivered[signal]);
	siglongjmp(way_out, 1);
}

/* SIGSEGV: makes the page writable, and the program writes again. */
PROBED void mending(int signal, siginfo_t *information, void *context)
{
	count(&delivered[signal]);
	count(&informed);
	if (information->si_code <= 0)
		return;
	CHECK(information->si_addr == page + 8 && context);
	CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
	count(&faults[signal]);
}

/* SIGFPE, SIGILL, SIGTRAP: without SA_SIGINFO, left by siglongjmp. */
PROBED void leaving_a_fault(int signal)
{
	count(&delivered[signal]);
	count(&informed); /* our own action asks for a siginfo */
	count(&faults[signal]);
	siglongjmp(way_out, 1);
}

static void install(int signal, void *handler, int flags)
{
	struct sigaction action = { .sa_flags = flags };
	action.sa_handler = (void (*)(int))handler;
	CHECK(sigaction(signal, &action, NULL) == 0);
	struct sigaction now;
	CHECK(sigaction(signal, NULL, &now) == 0 && now.sa_handler == action.sa_handler);
	CHECK(((unsigned int)now.sa_flags & (SA_SIGINFO | SA_RESETHAND | SA_ONSTACK)) == (unsigned int)flags);
}

static void install_early(void)
{
	static char stack[1 << 16];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) };
	CHECK(sigaltstack(&alternate, NULL) == 0);
	install(SIGUSR1, plain, 0);
	install(SIGUSR2, with_information, SA_SIGINFO);
	install(SIGHUP, on_alternate_stack, SA_SIGINFO | SA_ONSTACK);
}

static void *thread(void *unused)
{
	(void)unused;
	long before = delivered[SIGUSR2];
	CHECK(pthread_kill(pthread_self(), SIGUSR2) == 0);
	CHECK(delivered[SIGUSR2] > before);
	return NULL;
}

static void in_threads(void)
{
	pthread_t threads[3];
	for (int index = 0; index < 3; index++)
		CHECK(pthread_create(&threads[index], NULL, thread, NULL) == 0);
	for (int index = 0; index < 3; index++)
		CHECK(pthread_join(threads[index], NULL) == 0);
}

PROBED void write_there(char *address)
{
	*(volatile char *)address = 1;
}

PROBED long divide(long value, long by)
{
	__asm__ volatile("cqto; idivq %1" : "+a"(value) : "r"(by) : "rdx", "cc");
	return value;
}

static void fault(void)
{
	CHECK(mprotect(page, 4096, PROT_NONE) == 0);
	write_there(page + 8);
	raise(SIGSEGV); /* sent, and no fault */
	if (sigsetjmp(way_out, 1) == 0)
		divide(1, 0);
	if (sigsetjmp(way_out, 1) == 0)
		__asm__ volatile("ud2");
	if (sigsetjmp(way_out, 1) == 0)
		__asm__ volatile("int3");
}

static void call_directly(void)
{
	siginfo_t information = { .si_signo = SIGUSR2 };
	plain(-1);
	with_information(SIGUSR2, &information, NULL);
}

static void a_round(long round)
{
	raise(SIGUSR1);
	raise(SIGUSR2);
	CHECK(sigqueue(getpid(), SIGHUP, (union sigval){ .sival_int = 4711 }) == 0);
	call_directly();
	raise(SIGWINCH);
	install(SIGURG, once, SA_RESETHAND | SA_SIGINFO);
	raise(SIGURG);
	install(SIGIO, round & 1 ? (void *)first : (void *)second, round & 1 ? 0 : SA_SIGINFO);
	raise(SIGIO);
	raise(SIGTTIN);
	if (sigsetjmp(way_out, 1) == 0)
		raise(SIGPROF);
	fault();
	in_threads();
}

static void report(void)
{
	long all = 0;
	for (int signal = 1; signal <= 64; signal++) {
		all += delivered[signal];
		if (delivered[signal])
			printf("signal%d %ld\n", signal, delivered[signal]);
		if (faults[signal])
			printf("fault%d %ld\n", signal, faults[signal]);
	}
	printf("delivered %ld\ninformed %ld\nnested %ld\nonstack %ld\n", all, informed, nested, onstack);
}

static int all_kinds(long rounds)
{
	page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	install(SIGWINCH, outer, 0);
	install(SIGTTIN, forwarded, SA_SIGINFO);
	older = forwarded;
	install(SIGTTIN, forward, SA_SIGINFO);
	install(SIGPROF, leaving, 0);
	install(SIGSEGV, mending, SA_SIGINFO);
	install(SIGFPE, leaving_a_fault, 0);
	install(SIGILL, leaving_a_fault, 0);
	install(SIGTRAP, leaving_a_fault, 0);
	for (long round = 0; round < rounds; round++)
		a_round(round);
	CHECK(direct_calls == 2 * rounds && jumped_to == rounds);
	report();
	return finish(MIX_START);
}

/* ---- storm ------------------------------------------------------------------------------------------------------ */

static pthread_t main_thread;

static void *sender(void *unused)
{
	(void)unused;
	sigset_t all;
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	while (!stopping) {
		CHECK(pthread_kill(main_thread, SIGUSR1) == 0);
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	}
	return NULL;
}

PROBED void tick(int signal)
{
	count(&delivered[signal]);
}

static int storm(long signals)
{
	struct itimerval often = { { 0, 100 }, { 0, 100 } }, never = { { 0, 0 }, { 0, 0 } };
	pthread_t thread;
	main_thread = pthread_self();
	install(SIGALRM, tick, 0);
	install(SIGVTALRM, tick, 0);
	CHECK(pthread_create(&thread, NULL, sender, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
	uint64_t checksum = MIX_START;
	while (delivered[SIGALRM] < signals)
		checksum = mix(checksum, 1);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &never, NULL) == 0);
	stopping = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	report();
	return finish(MIX_START);
}

/* ---- swap ------------------------------------------------------------------------------------------------------- */

PROBED void either(int signal)
{
	count(&delivered[signal]);
}

PROBED void other(int signal)
{
	count(&delivered[signal]);
	DO_AFTER_CALL(signal);
}

static void *exchanger(void *unused)
{
	(void)unused;
	struct sigaction actions[2] = { { .sa_handler = either }, { .sa_handler = other } };
	for (long turn = 0; !stopping; turn++)
		CHECK(sigaction(SIGIO, &actions[turn & 1], NULL) == 0);
	return NULL;
}

static int swap(long signals)
{
	pthread_t thread;
	install(SIGIO, either, 0);
	CHECK(pthread_create(&thread, NULL, exchanger, NULL) == 0);
	for (long sent = 0; sent < signals; sent++)
		raise(SIGIO);
	stopping = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(delivered[SIGIO] == signals);
	report();
	return finish(MIX_START);
}

/* ---- fork ------------------------------------------------------------------------------------------------------- */

static int children(long rounds)
{
	for (long round = 0; round < rounds; round++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			raise(SIGUSR1);
			if (round == 0) {
				install(SIGWINCH, tick, 0);
				raise(SIGWINCH);
			}
			_exit(delivered[SIGUSR1] == 1 ? 0 : 1);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		in_children++;
	}
	printf("in_children %ld\n", in_children);
	return finish(MIX_START);
}

/* ---- ignored ---------------------------------------------------------------------------------------------------- */

static int ignored(long rounds)
{
	CHECK(signal(SIGUSR2, SIG_IGN) != SIG_ERR);
	for (long round = 0; round < rounds; round++) {
		raise(SIGUSR1);
		raise(SIGUSR2);
		raise(SIGURG);
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			_exit(kill(getppid(), SIGUSR2)); /* and its end is a SIGCHLD */
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	CHECK(delivered[SIGUSR1] == rounds);
	printf("ignored%d %ld\nignored%d %ld\nignored%d %ld\nof_children %ld\n", SIGUSR2, 2 * rounds, SIGCHLD, rounds,
	       SIGURG, rounds, 2 * rounds);
	return finish(MIX_START);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	install_early();
	wait_for_go();
	const char *mode = argc > 1 ? argv[1] : "";
	if (strcmp(mode, "storm") == 0)
		return storm(number(argc, argv, 2, 1000));
	if (strcmp(mode, "swap") == 0)
		return swap(number(argc, argv, 2, 1000));
	if (strcmp(mode, "ignored") == 0)
		return ignored(number(argc, argv, 2, 3));
	if (strcmp(mode, "fork") == 0)
		return children(number(argc, argv, 2, 3));
	return all_kinds(number(argc, argv, 1, 10));
}
