/*
 * procsystime - the time that system calls take, by call
 *
 * usage: nanoprobe tool procsystime {-p PID | -c COMMAND}
 *
 * One line for each system call, the one that took longest last: its nanoseconds between entry and
 * return, waits included, and the sum of all. A call that does not return (exit, a successful execve)
 * takes no time.
 *
 * example:
 *
 *   # nanoprobe tool procsystime -c 'ls -R /usr/share/doc'
 *                  TIME ns  CALL
 *                   701833  close
 *                  1823711  openat
 *                  6510038  getdents64
 *                  9035582  TOTAL:
 */
#pragma D option quiet

/* A signal's handler may make calls while it interrupts another: their stack pointers differ. */
syscall:::entry
{
	self->start[uregs[R_RSP]] = timestamp;
}

syscall:::return
/self->start[uregs[R_RSP]]/
{
	this->ns = timestamp - self->start[uregs[R_RSP]];
	@ns[probefunc] = sum(this->ns);
	@all["TOTAL:"] = sum(this->ns);
	self->start[uregs[R_RSP]] = 0;
}

END
{
	printf("%24s  CALL\n", "TIME ns");
	printa("%@24u  %s\n", @ns);
	printa("%@24u  %s\n", @all);
}
