/*
 * funccount - count the calls of functions
 *
 * usage: nanoprobe tool funccount {-p PID | -c COMMAND} [MODULE:]FUNCTION
 *
 * Counts the calls of every function that matches; globs match. A counted call costs a nanosecond,
 * so a whole program can be counted ('a.out:*'). Ends with the program, or by Ctrl-C.
 *
 * example: which of the string functions does ls use, and how often?
 *
 *   # nanoprobe tool funccount -c 'ls /usr/lib' 'libc:str*'
 *        CALLS  FUNCTION
 *           12  libc.so.6`strchr
 *          846  libc.so.6`strcoll
 */
#pragma D option quiet

pid$target:$1:entry
{
	@calls[probemod, probefunc] = count();
}

END
{
	printf("%12s  FUNCTION\n", "CALLS");
	printa("%@12u  %s`%s\n", @calls);
}
