/*
 * mallocstacks - bytes asked of malloc, by stack
 *
 * usage: nanoprobe tool mallocstacks {-p PID | -c COMMAND} [MODULE [STACKS]]
 *
 * Adds up the bytes that malloc of MODULE (default: libc) is asked for, by stack, and shows the
 * STACKS (20) with the most bytes, the largest last. --flamegraph FILE.svg draws them.
 *
 * example:
 *
 *   # nanoprobe tool mallocstacks -p 1234 libc 1
 *
 *                libc.so.6`malloc
 *                a.out`read_file+0x3d
 *                a.out`main+0x5a
 *                libc.so.6`__libc_start_call_main+0x78
 *            73400320
 */
#pragma D option quiet

pid$target:$1:malloc:entry
{
	@bytes[ustack()] = sum(arg0);
}

END
{
	trunc(@bytes, $2);
}
