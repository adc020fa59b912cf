/*
 * tcpaccept - connections that a process accepts
 *
 * usage: nanoprobe tool tcpaccept {-p PID | -c COMMAND}
 *
 * One line for each connection of TCP that accept or accept4 yields: the process, the thread, the new
 * descriptor, the port on which it came, and the address and port of the other side.
 *
 * example:
 *
 *   # nanoprobe tool tcpaccept -p redis-server
 *          PID        TID    FD  LOCAL   PORT  ADDRESS
 *         1234       1234     8   6379  51310  127.0.0.1
 */
#pragma D option quiet

BEGIN
{
	printf("%10s %10s %5s %6s %6s  ADDRESS\n", "PID", "TID", "FD", "LOCAL", "PORT");
}

tcp:::accept-established
{
	printf("%10d %10d %5d %6d %6d  %s\n", pid, tid, (int)uregs[R_RAX], args[3]->tcps_lport, args[3]->tcps_rport,
	    args[3]->tcps_raddr);
}
