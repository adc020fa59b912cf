/*
 * tcpconnect - connections that a process begins
 *
 * usage: nanoprobe tool tcpconnect {-p PID | -c COMMAND}
 *
 * One line for each connect to an address of IPv4 or IPv6, when it returns: the process, the thread, the
 * descriptor, the address, the port, and the error (errno; 0: none; 115, EINPROGRESS: the descriptor does
 * not wait). Datagrams are connected, too.
 *
 * example:
 *
 *   # nanoprobe tool tcpconnect -c 'curl -s http://127.0.0.1/'
 *          PID        TID    FD  ERROR   PORT  ADDRESS
 *        20917      20917     5    115     80  127.0.0.1
 */
#pragma D option quiet

BEGIN
{
	printf("%10s %10s %5s %6s %6s  ADDRESS\n", "PID", "TID", "FD", "ERROR", "PORT");
}

syscall::connect:return
/uregs[R_RDX] >= 16 && *(uint16_t *)copyin(uregs[R_RSI], 2) == 2/
{
	printf("%10d %10d %5d %6d %6d  %s\n", pid, tid, (int)uregs[R_RDI], errno,
	    ntohs(*(uint16_t *)copyin(uregs[R_RSI] + 2, 2)), inet_ntop(2, copyin(uregs[R_RSI] + 4, 4)));
}

syscall::connect:return
/uregs[R_RDX] >= 28 && *(uint16_t *)copyin(uregs[R_RSI], 2) == 10/
{
	printf("%10d %10d %5d %6d %6d  %s\n", pid, tid, (int)uregs[R_RDI], errno,
	    ntohs(*(uint16_t *)copyin(uregs[R_RSI] + 2, 2)), inet_ntop(10, copyin(uregs[R_RSI] + 8, 16)));
}
