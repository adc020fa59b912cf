#pragma D option quiet
struct s { int a; char b[8]; };
self struct s v; this int x;
pid$target:libc:malloc*:entry,BEGIN /arg0 > 3 && execname == "x"/ { @a[probefunc, ustack(3)] = quantize(arg0); self->v.a = (int)arg1 << 2; printf("%-5d %s\n", self->v.a, execname); }
pid$target:::return /self->v.a/ { trace(strjoin("a", substr("hello", 1, 2))); @b = lquantize(arg1, 0, 100, 10); self->v.a = 0; }
tick-1s { printa("%@d\n", @a); trunc(@a, 5); normalize(@b, 2); exit(0); }
END { clear(@a); }
