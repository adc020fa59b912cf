/*
 * profile - where the time goes, by stack
 *
 * usage: nanoprobe tool profile {-p PID | -c COMMAND} [RATE [STACKS]]
 *
 * Samples each thread RATE (97) times a second of its time on a processor, and shows the STACKS
 * (20) that were found most often, the most frequent last, and the number of samples. Nothing of
 * the program is patched. --flamegraph FILE.svg draws the samples.
 *
 * example: a server, until Ctrl-C
 *
 *   # nanoprobe tool profile -p 1234 97 1
 *
 *                a.out`parse_line+0x52
 *                a.out`serve+0x1c
 *                a.out`main+0x88
 *                libc.so.6`__libc_start_call_main+0x78
 *                318
 *
 *   712 samples
 */
#pragma D option quiet

profile-$1
/pid == $target/
{
	@stacks[ustack()] = count();
	@samples = count();
}

END
{
	trunc(@stacks, $2);
	printa(@stacks);
	printa("\n%@d samples\n", @samples);
}
