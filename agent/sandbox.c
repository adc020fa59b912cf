/* See sandbox.h. */
#include "sandbox.h"
#include "threads.h"

void np_note_sandbox(void)
{
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	struct np_control *control = (struct np_control *)np_header.control;
	if (!np_load_once(table->inherited.sandboxed))
		np_store(table->inherited.sandboxed, 1);
	if (np_load_once(table->magic) == NP_MAGIC && !table->began)
		np_store(control->sandboxed, 1);
}

/* Detours find no context, and ask np_enter_from, which refuses. */
void np_note_no_clock(void)
{
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	np_note_sandbox();
	np_store(table->inherited.sandboxed, NP_SANDBOXED_WITHOUT_CLOCK);
	u64 key = np_load_once(table->magic) == NP_MAGIC ? np_context_key(table) : 0;
	struct np_thread_slot *open, *slot = key ? np_find_slot(table, key, &open) : 0;
	if (slot)
		np_store(slot->context, 0);
}
