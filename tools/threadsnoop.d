/*
 * threadsnoop - new threads, and the functions in which they start
 *
 * usage: nanoprobe tool threadsnoop {-p PID | -c COMMAND} [MODULE]
 *
 * One line for each successful pthread_create of MODULE (default: libc): milliseconds since tracing
 * began, the creating thread, the function in which the new one starts, its argument.
 *
 * example:
 *
 *   # nanoprobe tool threadsnoop -c ./server
 *           MS      BY TID               ARGUMENT  STARTS IN
 *           12        4711           55d0c63f5260  a.out`worker
 *           12        4711           55d0c63f5268  a.out`worker
 */
#pragma D option quiet

BEGIN
{
	start = timestamp;
	printf("%12s %11s %22s  STARTS IN\n", "MS", "BY TID", "ARGUMENT");
}

pid$target:$1:pthread_create:entry
{
	self->function = arg2;
	self->argument = arg3;
}

pid$target:$1:pthread_create:return
/self->function && !(int)arg1/
{
	printf("%12d %11d %22x  %A\n", (timestamp - start) / 1000000, tid, self->argument, self->function);
}

pid$target:$1:pthread_create:return
{
	self->function = 0;
}
