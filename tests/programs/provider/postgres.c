/* Uses macros as a database server does: guarded by a semaphore, with arguments of the server's own types, and in
   the `else` branch of a macro. */
#include <stdbool.h>
#include <stdio.h>
#include "probes.h"

typedef unsigned int Oid;
typedef enum { LW_EXCLUSIVE, LW_SHARED } LWLockMode;
struct tag { Oid space, database, relation; };

static void query(const char *text, unsigned int number)
{
	struct tag tag = { 1663, 5, 16384 + number };

	TRACE_POSTGRESQL_QUERY_START(text);
	TRACE_POSTGRESQL_TRANSACTION_START(number);
	if (TRACE_POSTGRESQL_LWLOCK_ACQUIRE_ENABLED())
		TRACE_POSTGRESQL_LWLOCK_ACQUIRE("BufferMapping", LW_SHARED);
	TRACE_POSTGRESQL_BUFFER_READ_START(0, number, tag.space, tag.database, tag.relation, -1, true);
	TRACE_POSTGRESQL_BUFFER_READ_DONE(0, number, tag.space, tag.database, tag.relation, -1, true, number % 2 == 0);
	TRACE_POSTGRESQL_TRANSACTION_COMMIT(number);
	TRACE_POSTGRESQL_QUERY_DONE(text);
}

int main(void)
{
	for (unsigned int number = 0; number < 4; number++)
		query("SELECT 1;", number);
	TRACE_POSTGRESQL_CHECKPOINT_DONE(1, 2, 3, 4, 5);
	return 0;
}
