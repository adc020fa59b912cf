/* Return probes' places, some of which threads hold. No call is missed while a place is free, whichever thread
 * holds it. At most `maxactive` calls are followed at a time. argv[1] is the form, 1 exits, 2 the address; both
 * print the same. */
#define _GNU_SOURCE
#include <nanoprobe.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* A function that ThreadSanitizer instruments reads its return address, so the address cannot be replaced. */
#define FUNCTION __attribute__((noinline, noclone, no_sanitize_thread))
#define OPAQUE __asm__ volatile("" ::: "memory")
#define atomic_add(what, by) __atomic_add_fetch(&(what), by, __ATOMIC_SEQ_CST)

static int form;

static void put(struct np_retprobe *probe)
{
	probe->probe.size = sizeof(*probe);
	probe->probe.flags = NP_PROBE_NO_SIMD;
	probe->form = form;
	int error = np_register_retprobe(probe);
	if (error) {
		fprintf(stderr, "register: %s: %s\n", np_strerror(error), np_last_error());
		exit(1);
	}
}

static void take(const char *what, struct np_retprobe *probe)
{
	printf("%s: %lu hits, %lu missed, %lu abandoned\n", what, np_probe_hits(&probe->probe),
	       np_retprobe_nmissed(probe), np_retprobe_abandoned(probe));
	if (np_unregister_retprobe(probe))
		abort();
}

static pthread_t start(void *(*function)(void *), void *argument)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, function, argument))
		abort();
	return thread;
}

/* Calls itself `depth` times, then calls `within`. */
FUNCTION uint64_t descend(uint64_t depth, void (*within)(void *), void *argument)
{
	OPAQUE;
	if (depth <= 1) {
		if (within)
			within(argument);
		return 1;
	}
	uint64_t below = descend(depth - 1, within, argument);
	OPAQUE;
	return below + 1;
}

/* ---- idle places of threads that live are taken away ---- */

static pthread_barrier_t met;

static void *holds_two(void *unused)
{
	descend(2, NULL, NULL);
	pthread_barrier_wait(&met);
	pthread_barrier_wait(&met);
	/* The places were taken away, and are free again. */
	descend(2, NULL, NULL);
	pthread_barrier_wait(&met);
	pthread_barrier_wait(&met);
	return unused;
}

static void idle(void)
{
	enum { OTHERS = 4 };
	struct np_retprobe probe = { { .symbol = "descend" }, .maxactive = 2 * OTHERS };
	pthread_t threads[OTHERS];
	put(&probe);
	pthread_barrier_init(&met, NULL, OTHERS + 1);
	for (int index = 0; index < OTHERS; index++)
		threads[index] = start(holds_two, NULL);
	pthread_barrier_wait(&met);
	uint64_t depth = descend(2 * OTHERS, NULL, NULL) + descend(2 * OTHERS, NULL, NULL);
	pthread_barrier_wait(&met);
	pthread_barrier_wait(&met);
	/* One call more than there are places. */
	depth += descend(2 * OTHERS + 1, NULL, NULL);
	pthread_barrier_wait(&met);
	for (int index = 0; index < OTHERS; index++)
		pthread_join(threads[index], NULL);
	printf("depth %lu\n", depth);
	take("idle", &probe);
}

/* ---- while their owners run ---- */

enum { THREADS = 8, ROUNDS = 20000 };
static int followed, most, crowded;

static int begins(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	(void)instance;
	(void)regs;
	int now = atomic_add(followed, 1);
	if (now > crowded)
		atomic_add(most, 1);
	return 0;
}

static int ends(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	(void)instance;
	(void)regs;
	atomic_add(followed, -1);
	return 0;
}

static void *runs(void *seed)
{
	uint64_t random = (uint64_t)seed;
	for (int round = 0; round < ROUNDS; round++) {
		random = random * 6364136223846793005UL + 1442695040888963407UL;
		uint64_t depth = 1 + (random >> 62);
		if (descend(depth, NULL, NULL) != depth)
			abort();
	}
	return NULL;
}

static uint64_t calls_of(uint64_t random)
{
	uint64_t calls = 0;
	for (int round = 0; round < ROUNDS; round++) {
		random = random * 6364136223846793005UL + 1442695040888963407UL;
		calls += 1 + (random >> 62);
	}
	return calls;
}

static void crowd(int maxactive)
{
	struct np_retprobe probe = { { .symbol = "descend" }, .maxactive = maxactive, .entry_handler = begins, .handler = ends };
	pthread_t threads[THREADS];
	uint64_t calls = 0;
	followed = most = 0;
	crowded = maxactive;
	put(&probe);
	for (uint64_t index = 0; index < THREADS; index++) {
		calls += calls_of(index);
		threads[index] = start(runs, (void *)index);
	}
	for (int index = 0; index < THREADS; index++)
		pthread_join(threads[index], NULL);
	uint64_t hits = np_probe_hits(&probe.probe), missed = np_retprobe_nmissed(&probe);
	printf("crowd of %d: %s, %d followed, %d too many, %lu abandoned\n", maxactive,
	       hits && hits + missed == calls ? "exact" : "WRONG", followed, most, np_retprobe_abandoned(&probe));
	/* All places are free again. */
	uint64_t before = missed;
	descend((uint64_t)maxactive, NULL, NULL);
	printf("then %lu missed\n", np_retprobe_nmissed(&probe) - before);
	if (np_unregister_retprobe(&probe))
		abort();
}

/* ---- threads that end ---- */

static void *ends_idle(void *unused)
{
	descend(3, NULL, NULL);
	return unused;
}

static void leaves(void *unused)
{
	pthread_exit(unused);
}

static void *ends_within(void *unused)
{
	descend(3, leaves, NULL);
	return unused;
}

static void ended(void)
{
	struct np_retprobe probe = { { .symbol = "descend" }, .maxactive = 4 };
	put(&probe);
	for (int round = 0; round < 100; round++)
		pthread_join(start(round % 2 ? ends_within : ends_idle, NULL), NULL);
	descend(4, NULL, NULL);
	take("ended", &probe);
}

/* ---- signals at any moment of a call ---- */

static volatile int storm;
static uint64_t from_signals;

static void on_signal(int signal)
{
	(void)signal;
	descend(2, NULL, NULL);
	from_signals += 2;
}

static void *storms(void *thread)
{
	while (storm)
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
	return NULL;
}

static void signals(void)
{
	struct np_retprobe probe = { { .symbol = "descend" }, .maxactive = 3, .entry_handler = begins, .handler = ends };
	pthread_t self = pthread_self();
	crowded = 3;
	followed = most = 0;
	put(&probe);
	signal(SIGUSR1, on_signal);
	storm = 1;
	pthread_t other = start(storms, &self);
	uint64_t calls = 0;
	while (from_signals < 1000)
		calls += descend(2, NULL, NULL);
	storm = 0;
	pthread_join(other, NULL);
	calls += from_signals;
	uint64_t hits = np_probe_hits(&probe.probe), missed = np_retprobe_nmissed(&probe);
	printf("signals: %s, %d followed, %d too many\n", hits > missed && hits + missed == calls ? "exact" : "WRONG", followed,
	       most);
	if (np_unregister_retprobe(&probe))
		abort();
}

/* ---- a child has its own places, and places of threads that exist only in its parent ---- */

static sem_t inside, leave;

static void waits(void *unused)
{
	(void)unused;
	sem_post(&inside);
	while (sem_wait(&leave))
		;
}

static void *is_inside(void *unused)
{
	descend(2, NULL, NULL);
	descend(1, waits, NULL);
	return unused;
}

static void child(void)
{
	struct np_retprobe probe = { { .symbol = "descend" }, .maxactive = 6 };
	put(&probe);
	sem_init(&inside, 0, 0);
	sem_init(&leave, 0, 0);
	pthread_t threads[2] = { start(is_inside, NULL), start(is_inside, NULL) };
	sem_wait(&inside);
	sem_wait(&inside);
	pid_t pid = fork();
	if (pid == 0) {
		uint64_t depth = descend(6, NULL, NULL);
		_exit(depth == 6 && np_retprobe_nmissed(&probe) == 0 && np_retprobe_abandoned(&probe) == 2 ? 7 : 8);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	/* The parent's places have not changed. */
	descend(4, NULL, NULL);
	sem_post(&leave);
	sem_post(&leave);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	printf("child: %s\n", WIFEXITED(status) && WEXITSTATUS(status) == 7 ? "good" : "WRONG");
	take("child", &probe);
}

/* ---- calls that return in another thread ---- */

enum { FIBRES = 16 };
static ucontext_t fibres[FIBRES], scheduler;

static void pauses(void *fibre)
{
	swapcontext(fibre, &scheduler);
}

static void fibre_main(int index)
{
	descend(3, pauses, &fibres[index]);
	swapcontext(&fibres[index], &scheduler);
}

static void *resumes(void *unused)
{
	/* This thread has places of its own, and calls in them. */
	descend(2, NULL, NULL);
	for (int index = 0; index < FIBRES; index++)
		swapcontext(&scheduler, &fibres[index]);
	return unused;
}

static void migration(void)
{
	struct np_retprobe probe = { { .symbol = "descend" } };
	put(&probe);
	for (int index = 0; index < FIBRES; index++) {
		getcontext(&fibres[index]);
		fibres[index].uc_stack.ss_size = 32768;
		fibres[index].uc_stack.ss_sp = malloc(fibres[index].uc_stack.ss_size);
		fibres[index].uc_link = NULL;
		makecontext(&fibres[index], (void (*)(void))fibre_main, 1, index);
		swapcontext(&scheduler, &fibres[index]);
	}
	pthread_join(start(resumes, NULL), NULL);
	take("migration", &probe);
	for (int index = 0; index < FIBRES; index++)
		free(fibres[index].uc_stack.ss_sp);
}

/* ---- calls that nobody follows ---- */

static int none(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	(void)instance;
	return regs->rdi != 3;
}

static void left_out(void)
{
	struct np_retprobe probe = { { .symbol = "descend" }, .maxactive = 2, .entry_handler = none };
	put(&probe);
	for (int round = 0; round < 1000; round++)
		descend(6, NULL, NULL);
	take("left out", &probe);
}

/* ---- what a handler writes into an instance is gone with the call ---- */

static int wrong;
static struct np_retprobe scribbled;

static int scribbles(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	wrong += instance->retprobe != &scribbled || (uint64_t)instance->frame + 8 != regs->rsp || !instance->data ||
		 (uint64_t)instance->return_address != regs->rip;
	*instance = (struct np_retprobe_instance){ 0 };
	return 0;
}

static void scribbling(void)
{
	scribbled = (struct np_retprobe){ { .symbol = "descend" }, .handler = scribbles };
	put(&scribbled);
	for (int round = 0; round < 100; round++)
		descend(2, NULL, NULL);
	printf("%d wrong\n", wrong);
	take("scribbled", &scribbled);
}

/* ---- no call is made that the program's filter kills for ---- */

static void sandboxed(void)
{
	struct np_retprobe probe = { { .symbol = "descend" }, .maxactive = 2 };
	put(&probe);
	pthread_barrier_init(&met, NULL, 2);
	pthread_t thread = start(holds_two, NULL);
	pthread_barrier_wait(&met);
	pid_t pid = fork();
	if (pid == 0) {
		struct sock_filter filter[] = {
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 3, 0),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 1, 0),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		};
		struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
			_exit(9);
		uint64_t depth = descend(2, NULL, NULL);
		_exit(depth == 2 && np_retprobe_nmissed(&probe) == 2 ? 7 : 8);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	printf("sandboxed: %s\n", WIFEXITED(status) && WEXITSTATUS(status) == 7 ? "good" : "WRONG");
	for (int times = 0; times < 3; times++)
		pthread_barrier_wait(&met);
	pthread_join(thread, NULL);
	take("sandboxed", &probe);
}

int main(int count, char **arguments)
{
	form = count > 1 ? atoi(arguments[1]) : NP_RETPROBE_EXITS;
	idle();
	crowd(1);
	crowd(3);
	crowd(20);
	ended();
	signals();
	child();
	migration();
	left_out();
	scribbling();
	sandboxed();
	return 0;
}
