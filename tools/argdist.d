/*
 * argdist - the distribution of a function's argument, or of what it returns
 *
 * usage: nanoprobe tool argdist {-p PID | -c COMMAND} [MODULE:]FUNCTION [EXPRESSION [entry|return]]
 *
 * A histogram of an integer EXPRESSION of D (default: arg0, the first argument) at every entry of a
 * function that matches, or at every return, where arg1 is the returned value. If the program has
 * debug information, args[0] has its type: 'args[0]->port'. argcount counts each value by itself,
 * texts as well.
 *
 * example: how much is asked for at a time?
 *
 *   # nanoprobe tool argdist -p 1234 libc:read arg2
 *     libc.so.6`read
 *              value  ------------- Distribution ------------- count
 *                512 |                                         0
 *               1024 |@@@@@@@@@@@                              402
 *               2048 |                                         0
 *               4096 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@            1066
 *               8192 |                                         0
 */
#pragma D option quiet
#pragma D option argref

pid$target:$1:$3
{
	@values[probemod, probefunc] = quantize($2);
}

END
{
	printa("\n  %s`%s%@d\n", @values);
}
