/* The program's signal handlers. See handlers.c. */
#ifndef NANOPROBE_HANDLERS_H
#define NANOPROBE_HANDLERS_H

#include "chain.h"

/* The program is about to set the action for a signal. Waits for the tracer if clauses fire where handlers begin, and
 * the tracer does not know this one. */
void np_note_handler(struct np_thread_table *table, u64 signal, const struct np_sigaction *new);

#endif
