/*
 * funcslower - the calls of functions that took long
 *
 * usage: nanoprobe tool funcslower {-p PID | -c COMMAND} [MODULE:]FUNCTION [TIME]
 *
 * One line for each call that took TIME (microseconds, or with a unit: 5ms, 2s; default 1000)
 * or longer, callees included, when it returns: the thread, the time, the returned value, the
 * function, and its first three arguments by their names. Number, names and types of the arguments
 * come from the debug information. Without it, and where several functions match whose parameters
 * differ, the arguments are a question mark.
 *
 * example: which writes take more than 5 ms?
 *
 *   # nanoprobe tool funcslower -p 1234 libc:write 5ms
 *        TID MICROSECONDS           RETURNED  CALL
 *       1236        11273               4096  libc.so.6`write(fd=7, buf=0x7f52a4001b70, ...)
 */
#pragma D option quiet

BEGIN
{
	printf("%10s %12s %18s  CALL\n", "TID", "MICROSECONDS", "RETURNED");
}

pid$target:$1:entry
{
	self->start[probefunc, uregs[R_RSP]] = timestamp;
	self->first[probefunc, uregs[R_RSP]] = arg0;
	self->second[probefunc, uregs[R_RSP]] = arg1;
	self->third[probefunc, uregs[R_RSP]] = arg2;
}

pid$target:$1:return
/self->start[probefunc, uregs[R_RSP]] && timestamp - self->start[probefunc, uregs[R_RSP]] >= $2 * 1000/
{
	printf("%10d %12d %18s  %s`%s(%s)\n", tid, (timestamp - self->start[probefunc, uregs[R_RSP]]) / 1000,
	    returntext(arg1), probemod, probefunc, argtext(self->first[probefunc, uregs[R_RSP]],
	    self->second[probefunc, uregs[R_RSP]], self->third[probefunc, uregs[R_RSP]]));
}

pid$target:$1:return
/self->start[probefunc, uregs[R_RSP]]/
{
	self->start[probefunc, uregs[R_RSP]] = 0;
	self->first[probefunc, uregs[R_RSP]] = 0;
	self->second[probefunc, uregs[R_RSP]] = 0;
	self->third[probefunc, uregs[R_RSP]] = 0;
}
