/*
 * gcpause - how long the garbage collector of Python takes
 *
 * usage: nanoprobe tool gcpause {-p PID | -c COMMAND} [TIME]
 *
 * One line for each collection that took TIME (microseconds, or with a unit: 5ms; default 1000; 0:
 * all) or longer. At the end, the number of collections of each generation, their average and
 * longest. Uses CPython's own static probes gc-start and gc-done: it must have been built with
 * --with-dtrace, as Debian's and Fedora's are.
 *
 * example:
 *
 *   # nanoprobe tool gcpause -p 1234
 *     MICROSECONDS  GENERATION     COLLECTED
 *            12044           2           210
 *
 *      GENERATION   COLLECTIONS    AVERAGE us    LONGEST us
 *               0           412            61           303
 *               2             4          9200         12044
 */
#pragma D option quiet

BEGIN
{
	printf("%14s %11s %13s\n", "MICROSECONDS", "GENERATION", "COLLECTED");
}

python$target:::gc-start
{
	self->generation = arg0;
	self->start = timestamp;
}

python$target:::gc-done
/self->start && timestamp - self->start >= $1 * 1000/
{
	printf("%14d %11d %13d\n", (timestamp - self->start) / 1000, self->generation, arg0);
}

python$target:::gc-done
/self->start/
{
	this->us = (timestamp - self->start) / 1000;
	@collections[self->generation] = count();
	@average[self->generation] = avg(this->us);
	@longest[self->generation] = max(this->us);
	self->start = 0;
}

END
{
	printf("\n%13s %13s %13s %13s\n", "GENERATION", "COLLECTIONS", "AVERAGE us", "LONGEST us");
	printa("%13d %@13u %@13u %@13u\n", @collections, @average, @longest);
}
