/*
 * opensnoop - the files that are opened
 *
 * usage: nanoprobe tool opensnoop {-p PID | -c COMMAND}
 *
 * One line for each open, openat, openat2 and creat, when it returns: the process, the thread, the
 * descriptor or -1, the error (errno; 0: none), and the path as the program gave it. A path that
 * cannot be read is reported as an error.
 *
 * example: which files does a command look for?
 *
 *   # nanoprobe tool opensnoop -c 'ls /tmp'
 *        PID        TID    FD  ERROR  PATH
 *      20915      20915     3      0  /tmp
 */
#pragma D option quiet

BEGIN
{
	printf("%10s %10s %5s %6s  PATH\n", "PID", "TID", "FD", "ERROR");
}

syscall::open:entry,
syscall::creat:entry
{
	self->path = arg0;
	self->opens = 1;
}

syscall::openat:entry,
syscall::openat2:entry
{
	self->path = arg1;
	self->opens = 1;
}

syscall::open:return,
syscall::creat:return,
syscall::openat:return,
syscall::openat2:return
/self->opens/
{
	self->opens = 0;
	printf("%10d %10d %5d %6d  %s\n", pid, tid, (int)arg0, errno, copyinstr(self->path));
}
