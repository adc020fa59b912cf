BEGIN { @a = quantize(arg0, 5); @b = lquantize(arg0, 0, 10, 1, arg1); @c = llquantize(arg0, 2, 0, 3, 2, -1); }
