#!/usr/sbin/dtrace -s
/* funclatency-like */
#pragma D option quiet
int64_t total;
dtrace:::BEGIN { printf("Tracing... Ctrl-C to end.\n"); }
pid$target::malloc:entry { self->size = arg0; self->start = timestamp; }
pid$target::malloc:return
/self->size && arg1/
{
	this->ns = timestamp - self->start;
	@sizes["malloc bytes", probefunc] = lquantize(self->size, 0, 4096, 64);
	@lat[ustack(5), tid] = avg(this->ns);
	allocated[arg1] = self->size;
	total += self->size;
	self->size = 0;
}
pid$target::free:entry
/allocated[arg0]/
{
	printf("%Y %-16s %5d 0x%llx %d\n", walltimestamp, execname, pid, arg0, allocated[arg0]);
	allocated[arg0] = 0;
}
profile:::tick-1s, dtrace:::END
{
	printa("%-20s %s %@d\n", @sizes);
	trunc(@lat, 10); normalize(@lat, 1000);
	exit(total > 100 ? 1 : 0);
}
