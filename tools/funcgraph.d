/*
 * funcgraph - what a function calls, as a tree with times
 *
 * usage: nanoprobe tool funcgraph {-p PID | -c COMMAND} [MODULE:]FUNCTION [[MODULE:]FUNCTION]
 *
 * While a thread is inside the first function (globs match), every call of a function that matches the second is shown,
 * indented by its depth, and its return with its nanoseconds. The second is all of the program's own functions
 * (a.out:*) when it is not given.
 *
 * example: what does main do?
 *
 *   # nanoprobe tool funcgraph -c ./calls a.out:main
 *        TID  CALL
 *       4711  main() {
 *       4711    outer() {
 *       4711      inner() {
 *       4711      } = 3 (412 ns)
 *       4711    } = 6 (2210 ns)
 *       4711  } = 0 (8034 ns)
 */
#pragma D option quiet

self int64_t depth;

BEGIN
{
	printf("%10s  CALL\n", "TID");
}

pid$target:$1:entry
{
	self->inside++;
}

pid$target:$2:entry
/self->inside/
{
	printf("%10d  %*s%s() {\n", tid, self->depth * 2, "", probefunc);
	self->depth++;
	self->start[uregs[R_RSP]] = timestamp;
}

pid$target:$2:return
/self->inside && self->start[uregs[R_RSP]]/
{
	self->depth--;
	printf("%10d  %*s} = %d (%d ns)\n", tid, self->depth * 2, "", arg1, timestamp - self->start[uregs[R_RSP]]);
	self->start[uregs[R_RSP]] = 0;
}

pid$target:$1:return
/self->inside/
{
	self->inside--;
}
