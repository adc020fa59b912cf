/*
 * funclatency - how long functions take, as histograms
 *
 * usage: nanoprobe tool funclatency {-p PID | -c COMMAND} [MODULE:]FUNCTION
 *
 * A histogram of nanoseconds from each call to its return, callees included, for every function
 * that matches. The place of its return address distinguishes a call from the others of its thread,
 * so recursion is right. Calls that end by an exception or a longjmp are not counted.
 *
 * example: how long does malloc take in this process?
 *
 *   # nanoprobe tool funclatency -p 1234 libc:malloc
 *     libc.so.6                                           malloc
 *              value  ------------- Distribution ------------- count
 *                 16 |                                         0
 *                 32 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@    9201
 *                 64 |@@@                                      702
 *                128 |                                         12
 *                256 |                                         0
 *
 *      CALLS      AVERAGE ns  FUNCTION
 *       9915              39  libc.so.6`malloc
 */
#pragma D option quiet

pid$target:$1:entry
{
	self->start[probefunc, uregs[R_RSP]] = timestamp;
}

pid$target:$1:return
/self->start[probefunc, uregs[R_RSP]]/
{
	this->ns = timestamp - self->start[probefunc, uregs[R_RSP]];
	self->start[probefunc, uregs[R_RSP]] = 0;
	@histogram[probemod, probefunc] = quantize(this->ns);
	@calls[probemod, probefunc] = count();
	@average[probemod, probefunc] = avg(this->ns);
}

END
{
	printa(@histogram);
	printf("%10s %15s  FUNCTION\n", "CALLS", "AVERAGE ns");
	printa("%@10u %@15u  %s`%s\n", @calls, @average);
}
