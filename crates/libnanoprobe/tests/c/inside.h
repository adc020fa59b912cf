/* Shared by threads.c, forks.c and stacks.c: functions, and return probes of every kind. */
#ifndef INSIDE_H
#define INSIDE_H

#include "foobar.h"

__attribute__((unused)) static int counts(struct np_probe *probe, struct np_regs *regs)
{
	(void)regs;
	if (probe->user)
		__atomic_fetch_add((uint64_t *)probe->user, 1, __ATOMIC_RELAXED);
	return 0;
}

static int nothing(struct np_retprobe_instance *call, struct np_regs *regs)
{
	(void)call;
	(void)regs;
	return 0;
}

/* Without an entry handler, the entry takes the shortest way (short.S). */
static int with_entry;
#define EACH_FORM(form)                                                                                            \
	for (with_entry = 0; with_entry < 2; with_entry++)                                                         \
		for (int form = NP_RETPROBE_EXITS; form <= NP_RETPROBE_ADDRESS; form++)

__attribute__((unused)) static struct np_retprobe on_return(void *function, int form)
{
	return (struct np_retprobe){ { NP_SIZE(struct np_retprobe), .addr = function, .flags = flags },
				     .handler = nothing, .entry_handler = with_entry ? nothing : NULL, .form = form };
}

/* hits, nmissed, abandoned */
__attribute__((unused)) static int is(struct np_retprobe *probe, uint64_t hits, uint64_t missed, uint64_t abandoned)
{
	uint64_t now[] = { np_probe_hits(&probe->probe), np_retprobe_nmissed(probe), np_retprobe_abandoned(probe) };
	if (now[0] == hits && now[1] == missed && now[2] == abandoned)
		return 1;
	fprintf(stderr, "%lu hits, %lu missed, %lu abandoned\n", now[0], now[1], now[2]);
	return 0;
}

enum { THREADS = 40 };

#endif
