BEGIN { @a = count(); @b = sum(arg0); @c = avg(arg0); @d = min(arg0); @e = max((int)arg0); @f = stddev(arg0); @g = quantize(arg0);
	@h = lquantize(arg0, -10, 100, 5); @i = llquantize(arg0, 10, 0, 6, 20); @j = lquantize(arg0, 0, 10); }
