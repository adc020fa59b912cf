/*
 * argdist - the distribution of a function's argument
 *
 * usage: nanoprobe tool argdist {-p PID | -c COMMAND} [MODULE:]FUNCTION [ARGUMENT]
 *
 * A histogram of an integer argument of every function that matches: arg0 (the first, when not given) to arg9.
 *
 * example: how much is asked for at a time?
 *
 *   # nanoprobe tool argdist -p 1234 libc:read arg2
 *     libc.so.6                                           read
 *              value  ------------- Distribution ------------- count
 *                512 |                                         0
 *               1024 |@@@@@@@@@@@                              402
 *               2048 |                                         0
 *               4096 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@            1066
 *               8192 |                                         0
 */
#pragma D option quiet

pid$target:$1:entry
{
	@values[probemod, probefunc] = quantize($2);
}
