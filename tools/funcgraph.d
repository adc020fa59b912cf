/*
 * funcgraph - what a function calls, as a tree with times
 *
 * usage: nanoprobe tool funcgraph {-p PID | -c COMMAND} [MODULE:]FUNCTION [[MODULE:]FUNCTION]
 *
 * While a thread is inside the first function (globs match), every call of a function that matches
 * the second is shown, indented by its depth, and its return with its nanoseconds. Without a second
 * one, all of the program's own functions (a.out:*) are shown.
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
self int64_t top;

BEGIN
{
	printf("%10s  CALL\n", "TID");
}

/*
 * The place of its return address identifies the outermost call of the first function. A call that was left by an
 * exception or a longjmp has no return. The next call, or any call further up the stack, shows that the lost call
 * is over.
 */
pid$target:$1:entry
/!self->top || uregs[R_RSP] >= self->top/
{
	self->top = uregs[R_RSP];
	self->depth = 0;
}

pid$target:$2:entry
/self->top && uregs[R_RSP] > self->top/
{
	self->top = 0;
}

pid$target:$2:entry
/self->top/
{
	printf("%10d  %*s%s() {\n", tid, self->depth * 2, "", probefunc);
	self->level[probefunc, uregs[R_RSP]] = self->depth;
	self->depth++;
	self->start[probefunc, uregs[R_RSP]] = timestamp;
}

/* Back to the function's own level, because calls that it made may have been left without a return. */
pid$target:$2:return
/self->top && self->start[probefunc, uregs[R_RSP]]/
{
	self->depth = self->level[probefunc, uregs[R_RSP]];
	printf("%10d  %*s} = %d (%d ns)\n", tid, self->depth * 2, "", arg1, timestamp - self->start[probefunc, uregs[R_RSP]]);
	self->start[probefunc, uregs[R_RSP]] = 0;
	self->level[probefunc, uregs[R_RSP]] = 0;
}

pid$target:$1:return
/self->top == uregs[R_RSP]/
{
	self->top = 0;
}
