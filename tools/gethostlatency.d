/*
 * gethostlatency - how long names of hosts take to look up
 *
 * usage: nanoprobe tool gethostlatency {-p PID | -c COMMAND} [MODULE]
 *
 * One line for each getaddrinfo, gethostbyname and gethostbyname2 of MODULE (default: libc; a static program: a.out),
 * when it returns: the thread, the time in microseconds, the result (of getaddrinfo an error of netdb.h, or 0; of the
 * others whether the name was found), the function, and the name.
 *
 * example: is it the name server that is slow?
 *
 *   # nanoprobe tool gethostlatency -p 1234
 *        TID MICROSECONDS           RETURNED  CALL
 *       1236         4011                  0  getaddrinfo(db.example.org)
 */
#pragma D option quiet

BEGIN
{
	printf("%10s %12s %18s  CALL\n", "TID", "MICROSECONDS", "RETURNED");
}

pid$target:$1:getaddrinfo:entry,
pid$target:$1:gethostbyname:entry,
pid$target:$1:gethostbyname2:entry
/!self->since/
{
	self->since = timestamp;
	self->host = arg0;
	self->stack = uregs[R_RSP];
}

pid$target:$1:getaddrinfo:return,
pid$target:$1:gethostbyname:return,
pid$target:$1:gethostbyname2:return
/self->since && self->stack == uregs[R_RSP]/
{
	this->found = arg1 ? "found" : "not found";
	printf("%10d %12d %18s  %s(%s)\n", tid, (timestamp - self->since) / 1000,
	    probefunc == "getaddrinfo" ? returntext(arg1) : this->found, probefunc,
	    self->host ? copyinstr(self->host) : "NULL");
	self->since = 0;
}
