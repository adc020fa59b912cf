/*
 * nodegc - how long the garbage collector of node takes
 *
 * usage: nanoprobe tool nodegc {-p PID | -c COMMAND} [TIME [MODULE]]
 *
 * One line for each pause that took TIME (microseconds, or with a unit: 5ms; default 1000; 0: all)
 * or longer. At the end, the number of pauses of each kind, their average and longest. The kinds:
 *
 *   scavenge             the young generation, by copying
 *   minor mark-compact   the young generation, by marking
 *   mark-compact         all objects
 *   incremental marking  a step of marking between two pieces of the program
 *   weak callbacks       callbacks for objects that have died; some run within a collection
 *
 * Times V8's functions of MODULE (default: a.out; libnode* if node's engine is a library): node
 * must have its symbols, as nodejs.org's and most distributions' have.
 *
 * example:
 *
 *   # nanoprobe tool nodegc -p 1234
 *     MICROSECONDS  KIND
 *             8170  mark-compact
 *
 *           PAUSES    AVERAGE us    LONGEST us  KIND
 *               29           480           912  scavenge
 *                2          6121          8170  mark-compact
 */
#pragma D option quiet

BEGIN
{
	printf("%14s  KIND\n", "MICROSECONDS");
}

/* One pause may begin within another, in a callback of the outer pause. */
pid$target:$2:v8::internal::Heap::PerformGarbageCollection:entry
{
	self->kind[uregs[R_RSP]] = (int)arg1 == 0 ? "scavenge" : (int)arg1 == 1 ? "mark-compact" :
	    (int)arg1 == 2 ? "minor mark-compact" : strjoin("collector ", lltostr((int)arg1));
	self->start[uregs[R_RSP]] = timestamp;
}

pid$target:$2:v8::internal::IncrementalMarking::Step:entry
{
	self->kind[uregs[R_RSP]] = "incremental marking";
	self->start[uregs[R_RSP]] = timestamp;
}

pid$target:$2:v8::internal::GlobalHandles::InvokeSecondPassPhantomCallbacks:entry
{
	self->kind[uregs[R_RSP]] = "weak callbacks";
	self->start[uregs[R_RSP]] = timestamp;
}

pid$target:$2:v8::internal::Heap::PerformGarbageCollection:return,
pid$target:$2:v8::internal::IncrementalMarking::Step:return,
pid$target:$2:v8::internal::GlobalHandles::InvokeSecondPassPhantomCallbacks:return
/self->start[uregs[R_RSP]] && timestamp - self->start[uregs[R_RSP]] >= $1 * 1000/
{
	printf("%14d  %s\n", (timestamp - self->start[uregs[R_RSP]]) / 1000, self->kind[uregs[R_RSP]]);
}

pid$target:$2:v8::internal::Heap::PerformGarbageCollection:return,
pid$target:$2:v8::internal::IncrementalMarking::Step:return,
pid$target:$2:v8::internal::GlobalHandles::InvokeSecondPassPhantomCallbacks:return
/self->start[uregs[R_RSP]]/
{
	this->us = (timestamp - self->start[uregs[R_RSP]]) / 1000;
	@pauses[self->kind[uregs[R_RSP]]] = count();
	@average_us[self->kind[uregs[R_RSP]]] = avg(this->us);
	@longest_us[self->kind[uregs[R_RSP]]] = max(this->us);
	self->start[uregs[R_RSP]] = 0;
	self->kind[uregs[R_RSP]] = 0;
}

END
{
	printf("\n%14s %13s %13s  KIND\n", "PAUSES", "AVERAGE us", "LONGEST us");
	printa("%@14u %@13u %@13u  %s\n", @pauses, @average_us, @longest_us);
}
