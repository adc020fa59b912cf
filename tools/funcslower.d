/*
 * funcslower - the calls of functions that took long
 *
 * usage: nanoprobe tool funcslower {-p PID | -c COMMAND} [MODULE:]FUNCTION [TIME]
 *
 * One line for each call that took TIME (microseconds, or with a unit: 5ms, 2s; default 1000)
 * or longer, callees included, when it returns: the thread, the time, the returned value, the
 * first two arguments.
 *
 * example: which writes take more than 5 ms?
 *
 *   # nanoprobe tool funcslower -p 1234 libc:write 5ms
 *        TID   MICROSECONDS               RETURNED             ARG0             ARG1  FUNCTION
 *       1236          11273                   4096                7     7f52a4001b70  libc.so.6`write
 */
#pragma D option quiet

BEGIN
{
	printf("%10s %14s %22s %16s %16s  FUNCTION\n", "TID", "MICROSECONDS", "RETURNED", "ARG0", "ARG1");
}

pid$target:$1:entry
{
	self->start[probefunc, uregs[R_RSP]] = timestamp;
	self->first[probefunc, uregs[R_RSP]] = arg0;
	self->second[probefunc, uregs[R_RSP]] = arg1;
}

pid$target:$1:return
/self->start[probefunc, uregs[R_RSP]] && timestamp - self->start[probefunc, uregs[R_RSP]] >= $2 * 1000/
{
	printf("%10d %14d %22d %16x %16x  %s`%s\n", tid, (timestamp - self->start[probefunc, uregs[R_RSP]]) / 1000, arg1,
	    self->first[probefunc, uregs[R_RSP]], self->second[probefunc, uregs[R_RSP]], probemod, probefunc);
}

pid$target:$1:return
/self->start[probefunc, uregs[R_RSP]]/
{
	self->start[probefunc, uregs[R_RSP]] = 0;
	self->first[probefunc, uregs[R_RSP]] = 0;
	self->second[probefunc, uregs[R_RSP]] = 0;
}
