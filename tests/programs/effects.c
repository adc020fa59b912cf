/* A program whose data a tracer can change by D's destructive actions. It prints its data and the signals that it has
 * received. */
#include <signal.h>
#include <time.h>
#include "check.h"

static volatile sig_atomic_t signalled;

static void on_signal(int number)
{
	signalled += number;
}

PROBED uint64_t offers(volatile long *number_to_change, volatile char *text, const long *constant)
{
	return (uint64_t)(*number_to_change + text[0] + *constant);
}

/* The tracer is asked to raise SIGUSR1. */
PROBED void asks(void)
{
	static volatile long times;
	times++;
}

int main(int argc, char **argv)
{
	static const long constant = 7;
	begin(&argc, argv);
	volatile long value = 1;
	volatile char text[16] = "unchanged";
	struct sigaction action = { .sa_handler = on_signal };
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	offers(&value, text, &constant);
	asks();
	/* The signal comes some milliseconds later, or minutes later if the tracer gets no processor, or never. */
	for (int wait = 0; wait < 300000 && !signalled && argc > 1; wait++)
		nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
	printf("value %ld\ntext %s\nconstant %ld\nsignals %d\n", value, (const char *)text, constant, (int)signalled);
	return finish(MIX_START);
}
