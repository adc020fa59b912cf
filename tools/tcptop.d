/*
 * tcptop - bytes sent and received, by connection
 *
 * usage: nanoprobe tool tcptop {-p PID | -c COMMAND}
 *
 * One row for each connection of TCP that has moved bytes: the process, its own end and the other end,
 * and the bytes that its calls have received and sent. Connections that are older than the tracing
 * count, too. Most bytes come last; -x top shows the rows as they change.
 *
 * example: a command that fetches a page
 *
 *   # nanoprobe tool tcptop -c 'curl -s http://127.0.0.1/'
 *          PID  LOCAL                      PORT  REMOTE                     PORT    RECEIVED        SENT
 *        20917  127.0.0.1                 51310  127.0.0.1                    80        1532          73
 */
#pragma D option quiet

tcp:::send
{
	@sent[pid, args[3]->tcps_laddr, args[3]->tcps_lport, args[3]->tcps_raddr, args[3]->tcps_rport] =
	    sum(args[2]->ip_plength);
}

tcp:::receive
{
	@received[pid, args[3]->tcps_laddr, args[3]->tcps_lport, args[3]->tcps_raddr, args[3]->tcps_rport] =
	    sum(args[2]->ip_plength);
}

END
{
	printf("%10s  %-24s %6s  %-24s %6s %11s %11s\n", "PID", "LOCAL", "PORT", "REMOTE", "PORT", "RECEIVED",
	    "SENT");
	printa("%10d  %-24s %6d  %-24s %6d %@11d %@11d\n", @received, @sent);
}
