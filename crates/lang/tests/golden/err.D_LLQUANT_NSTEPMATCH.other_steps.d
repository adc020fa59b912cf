BEGIN { @ = llquantize(arg0, 10, 0, 6, 10); @ = llquantize(arg0, 10, 0, 6, 20); }
