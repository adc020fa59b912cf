/* See sandbox.h. */
#include "sandbox.h"

void np_note_sandbox(void)
{
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	struct np_control *control = (struct np_control *)np_header.control;
	np_store(table->inherited.sandboxed, 1);
	if (np_load_once(table->magic) == NP_MAGIC && !table->began)
		np_store(control->sandboxed, 1);
}
