/*
 * iosnoop - what is read and written, with the time that it took
 *
 * usage: nanoprobe tool iosnoop {-p PID | -c COMMAND}
 *
 * One line for each read, write, pread64, pwrite64, readv, writev, preadv, pwritev, sendto and recvfrom,
 * when it returns: the process, the thread, R or W, the descriptor, the bytes or -1, the error (errno;
 * 0: none), the microseconds, and the path (empty for what has none).
 *
 * example:
 *
 *   # nanoprobe tool iosnoop -c 'cat /etc/hostname'
 *          PID        TID  D    FD      BYTES  ERROR          us  PATH
 *        20915      20915  R     3         12      0           4  /etc/hostname
 *        20915      20915  W     1         12      0          11  /dev/pts/0
 *        20915      20915  R     3          0      0           1  /etc/hostname
 */
#pragma D option quiet

BEGIN
{
	printf("%10s %10s  D %5s %10s %6s %11s  PATH\n", "PID", "TID", "FD", "BYTES", "ERROR", "us");
}

/* A signal's handler may make calls while it interrupts another: their stack pointers differ. */
syscall::read:entry,
syscall::pread64:entry,
syscall::readv:entry,
syscall::preadv:entry,
syscall::recvfrom:entry,
syscall::write:entry,
syscall::pwrite64:entry,
syscall::writev:entry,
syscall::pwritev:entry,
syscall::sendto:entry
{
	self->start[uregs[R_RSP]] = timestamp;
}

syscall::read:return,
syscall::pread64:return,
syscall::readv:return,
syscall::preadv:return,
syscall::recvfrom:return
/self->start[uregs[R_RSP]]/
{
	this->us = (timestamp - self->start[uregs[R_RSP]]) / 1000;
	self->start[uregs[R_RSP]] = 0;
	printf("%10d %10d  R %5d %10d %6d %11d  %s\n", pid, tid, (int)uregs[R_RDI], arg0, errno, this->us,
	    fds[(int)uregs[R_RDI]].fi_pathname);
}

syscall::write:return,
syscall::pwrite64:return,
syscall::writev:return,
syscall::pwritev:return,
syscall::sendto:return
/self->start[uregs[R_RSP]]/
{
	this->us = (timestamp - self->start[uregs[R_RSP]]) / 1000;
	self->start[uregs[R_RSP]] = 0;
	printf("%10d %10d  W %5d %10d %6d %11d  %s\n", pid, tid, (int)uregs[R_RDI], arg0, errno, this->us,
	    fds[(int)uregs[R_RDI]].fi_pathname);
}
