/*
 * tcpaccept - connections that a process accepts
 *
 * usage: nanoprobe tool tcpaccept {-p PID | -c COMMAND}
 *
 * One line for each accept and accept4 that yields a connection of IPv4 or IPv6: the process, the
 * thread, the new descriptor, and the address and port of the other side. A program that does not ask
 * for the address (accept with NULL) is not shown.
 *
 * example:
 *
 *   # nanoprobe tool tcpaccept -p redis-server
 *          PID        TID    FD   PORT  ADDRESS
 *         1234       1234     8  51310  127.0.0.1
 */
#pragma D option quiet

BEGIN
{
	printf("%10s %10s %5s %6s  ADDRESS\n", "PID", "TID", "FD", "PORT");
}

syscall::accept:return,
syscall::accept4:return
/arg0 >= 0 && uregs[R_RSI] != 0 && *(uint16_t *)copyin(uregs[R_RSI], 2) == 2/
{
	printf("%10d %10d %5d %6d  %s\n", pid, tid, (int)arg0, ntohs(*(uint16_t *)copyin(uregs[R_RSI] + 2, 2)),
	    inet_ntop(2, copyin(uregs[R_RSI] + 4, 4)));
}

syscall::accept:return,
syscall::accept4:return
/arg0 >= 0 && uregs[R_RSI] != 0 && *(uint16_t *)copyin(uregs[R_RSI], 2) == 10/
{
	printf("%10d %10d %5d %6d  %s\n", pid, tid, (int)arg0, ntohs(*(uint16_t *)copyin(uregs[R_RSI] + 2, 2)),
	    inet_ntop(10, copyin(uregs[R_RSI] + 8, 16)));
}
