/*
 * syscount - system calls: how many, how many failed, how long they took
 *
 * usage: nanoprobe tool syscount {-p PID | -c COMMAND} [CALL]
 *
 * One line for each system call that matches CALL (default: *, all of them): the calls, those that
 * failed, and the microseconds between entries and returns, waits included. Needs neither root nor
 * ptrace. A call that does not return (exit, a successful execve) takes no time.
 *
 * example:
 *
 *   # nanoprobe tool syscount -c 'ls -R /usr/share/doc'
 *        CALLS      FAILED          TIME us  CALL
 *            1           0                0  exit_group
 *          866           0              702  close
 *          877          13             1823  openat
 *         1688           0             6510  getdents64
 */
#pragma D option quiet

/* A signal's handler may make calls while it interrupts another: their stack pointers differ. */
syscall::$1:entry
{
	@calls[probefunc] = count();
	self->start[uregs[R_RSP]] = timestamp;
}

syscall::$1:return
/self->start[uregs[R_RSP]]/
{
	@ns[probefunc] = sum(timestamp - self->start[uregs[R_RSP]]);
	self->start[uregs[R_RSP]] = 0;
}

syscall::$1:return
/errno != 0/
{
	@failed[probefunc] = count();
}

END
{
	printf("%12s %11s %16s  CALL\n", "CALLS", "FAILED", "TIME us");
	normalize(@ns, 1000);
	printa("%@12u %@11u %@16u  %s\n", @calls, @failed, @ns);
}
