/*
 * sqlslower - queries of a PostgreSQL backend that took long
 *
 * usage: nanoprobe tool sqlslower {-p PID | -c COMMAND} [TIME]
 *
 * One line for each query that took TIME (milliseconds, or with a unit: 2s; default 1; 0: all) or
 * longer, when it is done. Uses the server's own static probes: PostgreSQL must have been built
 * with --enable-dtrace, as most distributions' is. A server has a process for each connection;
 * SELECT pg_backend_pid() shows which.
 *
 * A query of the simple protocol (psql's) is timed from its text to its last row. A query of the extended protocol
 * (parsed, bound and executed, as most libraries do) is timed while it is executed. A query that fails (or is
 * cancelled) is marked FAILED, and timed until its transaction was given up. If a client sends a query by the extended
 * protocol into a transaction that has failed before, the server's probes do not show it.
 *
 * example:
 *
 *   # nanoprobe tool sqlslower -p 1234 100
 *     MICROSECONDS  QUERY
 *           200713  SELECT pg_sleep(0.2)
 *           102201  FAILED SELECT 1 / 0 FROM pg_sleep(0.1)
 */
#pragma D option quiet
#pragma D option strsize=1k

self int64_t start;
self int64_t executing;
self int64_t since;
self int64_t aborted;
self int64_t done;
self string text;

BEGIN
{
	printf("%14s  QUERY\n", "MICROSECONDS");
}

/*
 * The backend's next action (a text), or no text if it is idle. A query that fails has not reported its end when the
 * backend becomes idle. In the extended protocol this alone proves nothing, because a client may only have a query
 * parsed: then the transaction must have been given up, too. ROLLBACK also gives up a transaction, but reports its end.
 */
postgresql$target:::statement-status
/!arg0 && (self->start || (self->aborted && !self->done))/
{
	this->began = self->start ? self->start : self->since;
	this->took = (self->aborted ? self->aborted : timestamp) - this->began;
	self->failed = this->took >= $1 * 1000000;
	self->took = this->took / 1000;
}

postgresql$target:::statement-status
/!arg0 && self->failed/
{
	printf("%14d  FAILED %s\n", self->took, self->text);
	self->failed = 0;
}

postgresql$target:::statement-status
{
	self->since = arg0 ? timestamp : 0;
	self->start = arg0 ? self->start : 0;
	self->executing = 0;
	self->aborted = 0;
	self->done = 0;
}

/* The text is gone by the time a failure is known. */
postgresql$target:::statement-status
/arg0/
{
	self->text = copyinstr(arg0);
}

postgresql$target:::transaction-abort
{
	self->aborted = timestamp;
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
	self->done = 1;
}

/* Within a query of the simple protocol, these probes belong to that query. */
postgresql$target:::query-execute-start
/self->since && !self->start/
{
	self->executing = timestamp;
}

postgresql$target:::query-execute-done
/self->executing && timestamp - self->executing >= $1 * 1000000/
{
	printf("%14d  %s\n", (timestamp - self->executing) / 1000, self->text);
}

postgresql$target:::query-execute-done
{
	self->executing = 0;
	self->done = 1;
}
