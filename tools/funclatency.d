/*
 * funclatency - how long functions take, as histograms
 *
 * usage: nanoprobe tool funclatency {-p PID | -c COMMAND} [MODULE:]FUNCTION [ns|us|ms]
 *
 * A histogram of the time from each call to its return, callees included, for every function that
 * matches, in nanoseconds (ns, the default), microseconds (us) or milliseconds (ms). The place of its
 * return address distinguishes a call from the others of its thread, so recursion is right. Calls
 * that end by an exception or a longjmp are not counted.
 *
 * example: how long does malloc take in this process?
 *
 *   # nanoprobe tool funclatency -p 1234 libc:malloc
 *     libc.so.6`malloc (ns)
 *              value  ------------- Distribution ------------- count
 *                 16 |                                         0
 *                 32 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@    9201
 *                 64 |@@@                                      702
 *                128 |                                         12
 *                256 |                                         0
 *
 *        CALLS      AVERAGE UNIT  FUNCTION
 *         9915           39 ns    libc.so.6`malloc
 */
#pragma D option quiet

inline int ns = 1;
inline int us = 1000;
inline int ms = 1000000;

pid$target:$1:entry
{
	self->start[probefunc, uregs[R_RSP]] = timestamp;
}

pid$target:$1:return
/self->start[probefunc, uregs[R_RSP]]/
{
	this->time = (timestamp - self->start[probefunc, uregs[R_RSP]]) / $2;
	self->start[probefunc, uregs[R_RSP]] = 0;
	@histogram[probemod, probefunc, $$2] = quantize(this->time);
	@calls[$$2, probemod, probefunc] = count();
	@average[$$2, probemod, probefunc] = avg(this->time);
}

END
{
	printa("\n  %s`%s (%s)%@d\n", @histogram);
	printf("%12s %12s UNIT  FUNCTION\n", "CALLS", "AVERAGE");
	printa("%@12u %@12u %-4s  %s`%s\n", @calls, @average);
}
