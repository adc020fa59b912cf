pid$target::read:return /arg1 > 0/ { @[execname, probefunc] = quantize(arg1); }
