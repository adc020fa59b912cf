BEGIN { @ = lquantize(arg0, 0, pid, 1); }
