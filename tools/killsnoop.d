/*
 * killsnoop - the signals that are sent
 *
 * usage: nanoprobe tool killsnoop {-p PID | -c COMMAND}
 *
 * One line for each system call that sends a signal, when it returns: the process, the thread, the
 * signal's number, what it is sent to (a process, a thread, a group if negative; for
 * pidfd_send_signal a descriptor), the error (errno; 0: none), and the call.
 *
 * example: which signals does a shell send?
 *
 *   # nanoprobe tool killsnoop -p bash
 *        PID        TID  SIGNAL         TO  ERROR  CALL
 *       1234       1234      15      20917      0  kill
 */
#pragma D option quiet

BEGIN
{
	printf("%10s %10s %7s %10s %6s  CALL\n", "PID", "TID", "SIGNAL", "TO", "ERROR");
}

syscall::kill:entry,
syscall::tkill:entry,
syscall::rt_sigqueueinfo:entry,
syscall::pidfd_send_signal:entry
{
	self->to = arg0;
	self->signal = arg1;
	self->sends = 1;
}

syscall::tgkill:entry,
syscall::rt_tgsigqueueinfo:entry
{
	self->to = arg1;
	self->signal = arg2;
	self->sends = 1;
}

syscall::kill:return,
syscall::tkill:return,
syscall::rt_sigqueueinfo:return,
syscall::pidfd_send_signal:return,
syscall::tgkill:return,
syscall::rt_tgsigqueueinfo:return
/self->sends/
{
	self->sends = 0;
	printf("%10d %10d %7d %10d %6d  %s\n", pid, tid, (int)self->signal, (int)self->to, errno, probefunc);
}
