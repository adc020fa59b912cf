/* argument: text */
/* As scripts for DTrace do: 0 and NULL are strings, too. */
pid$target:libc:open:entry /$$1 != NULL/ { self->path = copyinstr(arg0); names[tid] = self->path; }
pid$target:libc:open:return
/self->path != NULL && NULL != names[tid]/
{
	printf("%s\n", self->path != 0 ? self->path : NULL);
	self->path = 0;
	names[tid] = NULL;
	names[tid + 1] = 0;
}
