BEGIN { @ = lquantize(arg0, 0x80000000, 0x80000010, 1); }
