/*
 * gcpause - how long the garbage collector of Python takes
 *
 * usage: nanoprobe tool gcpause {-p PID | -c COMMAND} [TIME]
 *
 * One line for each collection that took TIME (microseconds, or with a unit: 5ms; default 1000; 0:
 * all) or longer. At the end, the number of collections of each generation, their average and
 * longest. CPython numbers its generations: 0 is young, 1 middle, 2 full (all objects). Uses CPython's own static probes gc-start and gc-done: it must have been built with
 * --with-dtrace, as Debian's and Fedora's are.
 *
 * example:
 *
 *   # nanoprobe tool gcpause -p 1234
 *     MICROSECONDS     COLLECTED  GENERATION
 *            12044           210  2 (full)
 *
 *      COLLECTIONS    AVERAGE us    LONGEST us  GENERATION
 *              412            61           303  0 (young)
 *                4          9200         12044  2 (full)
 */
#pragma D option quiet

BEGIN
{
	printf("%14s %13s  GENERATION\n", "MICROSECONDS", "COLLECTED");
}

python$target:::gc-start
{
	self->generation = arg0;
	self->start = timestamp;
}

python$target:::gc-done
/self->start && timestamp - self->start >= $1 * 1000/
{
	this->name = self->generation == 0 ? "0 (young)" : self->generation == 1 ? "1 (middle)" :
	    self->generation == 2 ? "2 (full)" : lltostr(self->generation);
	printf("%14d %13d  %s\n", (timestamp - self->start) / 1000, arg0, this->name);
}

python$target:::gc-done
/self->start/
{
	this->us = (timestamp - self->start) / 1000;
	this->name = self->generation == 0 ? "0 (young)" : self->generation == 1 ? "1 (middle)" :
	    self->generation == 2 ? "2 (full)" : lltostr(self->generation);
	@collections[this->name] = count();
	@average_us[this->name] = avg(this->us);
	@longest_us[this->name] = max(this->us);
	self->start = 0;
}

END
{
	printf("\n%13s %13s %13s  GENERATION\n", "COLLECTIONS", "AVERAGE us", "LONGEST us");
	printa("%@13u %@13u %@13u  %s\n", @collections, @average_us, @longest_us);
}
