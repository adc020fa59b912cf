BEGIN { @ = llquantize(arg0, 10, 6, 3, 10); }
