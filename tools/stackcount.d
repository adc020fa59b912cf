/*
 * stackcount - the callers of a function, by stack
 *
 * usage: nanoprobe tool stackcount {-p PID | -c COMMAND} [MODULE:]FUNCTION
 *
 * Counts the calls of every function that matches by the whole stack that led there. --flamegraph
 * FILE.svg draws the counts.
 *
 * example: who allocates memory?
 *
 *   # nanoprobe tool stackcount -p 1234 libc:malloc
 *
 *                libc.so.6`malloc
 *                a.out`parse_line+0x1c
 *                a.out`main+0x88
 *                libc.so.6`__libc_start_call_main+0x78
 *                210
 */
#pragma D option quiet

pid$target:$1:entry
{
	@stacks[ustack()] = count();
}
