pid$target::open*:entry { self->ts = timestamp; self->path = copyinstr(arg0); }
pid$target::open*:return /self->ts/
{
	@time[self->path] = quantize(timestamp - self->ts);
	self->ts = 0; self->path = 0 ? "" : "";
}
