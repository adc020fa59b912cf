/*
 * sqlslower - queries of a PostgreSQL backend that took long
 *
 * usage: nanoprobe tool sqlslower {-p PID | -c COMMAND} [MILLISECONDS]
 *
 * One line for each query that took MILLISECONDS (1 when not given; 0: all) or longer, when it is done. By the server's own
 * static probes: PostgreSQL must have been built with --enable-dtrace, as most distributions' is. A server has a process
 * for each connection; SELECT pg_backend_pid() tells which.
 *
 * A query of the simple protocol (psql's) is timed from its text to its last row, one of the extended protocol (parsed,
 * bound and executed, as most libraries do) while it is executed. Queries that fail are not shown.
 *
 * example:
 *
 *   # nanoprobe tool sqlslower -p 1234 100
 *     MICROSECONDS  QUERY
 *           200713  SELECT pg_sleep(0.2)
 */
#pragma D option quiet
#pragma D option strsize=1k

self int64_t start;
self int64_t executing;
self int64_t text;

BEGIN
{
	printf("%14s  QUERY\n", "MICROSECONDS");
}

/* What the backend is about to do, or that it idles. Who failed has not said that he is done. */
postgresql$target:::statement-status
{
	self->text = arg0;
	self->start = arg0 ? self->start : 0;
	self->executing = 0;
}

postgresql$target:::query-start
{
	self->start = timestamp;
}

postgresql$target:::query-done
/self->start && timestamp - self->start >= $1 * 1000000/
{
	printf("%14d  %s\n", (timestamp - self->start) / 1000, copyinstr(arg0));
}

postgresql$target:::query-done
{
	self->start = 0;
}

/* Within a query of the simple protocol these are a part of it. */
postgresql$target:::query-execute-start
/self->text && !self->start/
{
	self->executing = timestamp;
}

postgresql$target:::query-execute-done
/self->executing && timestamp - self->executing >= $1 * 1000000/
{
	printf("%14d  %s\n", (timestamp - self->executing) / 1000, copyinstr(self->text));
}

postgresql$target:::query-execute-done
{
	self->executing = 0;
}
