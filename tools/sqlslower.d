/*
 * sqlslower - queries of a PostgreSQL backend that took long
 *
 * usage: nanoprobe tool sqlslower {-p PID | -c COMMAND} [MILLISECONDS]
 *
 * One line for each query that took MILLISECONDS (1 when not given; 0: all) or longer, when it is done. By the server's own
 * static probes query-start and query-done: PostgreSQL must have been built with --enable-dtrace, as most distributions'
 * is. A server has a process for each connection; SELECT pg_backend_pid() tells which.
 *
 * example:
 *
 *   # nanoprobe tool sqlslower -p 1234 100
 *     MICROSECONDS  QUERY
 *           200713  SELECT pg_sleep(0.2)
 */
#pragma D option quiet
#pragma D option strsize=1k

BEGIN
{
	printf("%14s  QUERY\n", "MICROSECONDS");
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
