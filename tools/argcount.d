/*
 * argcount - how often each value is passed to a function, or returned by it
 *
 * usage: nanoprobe tool argcount {-p PID | -c COMMAND} [MODULE:]FUNCTION [EXPRESSION [entry|return]]
 *
 * Counts the values of an EXPRESSION of D (default: arg0, the first argument) at every entry of a
 * function that matches, or at every return, where arg1 is the returned value: an integer, or a
 * text ('copyinstr(arg0)'). If the program has debug information, args[0] has its type:
 * 'stringof(args[0]->name)'. argdist makes a histogram of them.
 *
 * example: which files are opened?
 *
 *   # nanoprobe tool argcount -p 1234 libc:open64 'copyinstr(arg0)'
 *          COUNT  FUNCTION          VALUE
 *              2  libc.so.6`open64  /proc/self/stat
 *             61  libc.so.6`open64  /etc/localtime
 */
#pragma D option quiet
#pragma D option argref

pid$target:$1:$3
{
	@values[probemod, probefunc, $2] = count();
}

END
{
	printf("%12s  FUNCTION          VALUE\n", "COUNT");
	printa("%@12u  %s`%s  %v\n", @values);
}
