/*
 * nodegc - how long the garbage collector of node takes
 *
 * usage: nanoprobe tool nodegc {-p PID | -c COMMAND} [TIME [MODULE]]
 *
 * One line for each collection that took TIME (microseconds, or with a unit: 5ms; default 1000;
 * 0: all) or longer. At the end, the number of collections of each kind, their average and
 * longest. Times v8::internal::Heap::PerformGarbageCollection of MODULE (default: a.out; libnode*
 * if node's engine is a library): node must have its symbols, as nodejs.org's and most
 * distributions' have. The kinds are V8's numbers: 0 is a scavenge (the young generation), 1 a
 * mark-compact (all), 2 a minor mark-sweep.
 *
 * example:
 *
 *   # nanoprobe tool nodegc -p 1234
 *     MICROSECONDS  KIND
 *             8170     1
 *
 *   KIND   COLLECTIONS    AVERAGE us    LONGEST us
 *      0            29           480           912
 *      1             2          6121          8170
 */
#pragma D option quiet

BEGIN
{
	printf("%14s  KIND\n", "MICROSECONDS");
}

pid$target:$2:v8::internal::Heap::PerformGarbageCollection:entry
{
	/* One may begin within another: by what the outer one calls back. */
	self->kind[uregs[R_RSP]] = (int)arg1;
	self->start[uregs[R_RSP]] = timestamp;
}

pid$target:$2:v8::internal::Heap::PerformGarbageCollection:return
/self->start[uregs[R_RSP]] && timestamp - self->start[uregs[R_RSP]] >= $1 * 1000/
{
	printf("%14d  %4d\n", (timestamp - self->start[uregs[R_RSP]]) / 1000, self->kind[uregs[R_RSP]]);
}

pid$target:$2:v8::internal::Heap::PerformGarbageCollection:return
/self->start[uregs[R_RSP]]/
{
	this->us = (timestamp - self->start[uregs[R_RSP]]) / 1000;
	@collections[self->kind[uregs[R_RSP]]] = count();
	@average[self->kind[uregs[R_RSP]]] = avg(this->us);
	@longest[self->kind[uregs[R_RSP]]] = max(this->us);
	self->start[uregs[R_RSP]] = 0;
	self->kind[uregs[R_RSP]] = 0;
}

END
{
	printf("\n%4s %13s %13s %13s\n", "KIND", "COLLECTIONS", "AVERAGE us", "LONGEST us");
	printa("%4d %@13u %@13u %@13u\n", @collections, @average, @longest);
}
