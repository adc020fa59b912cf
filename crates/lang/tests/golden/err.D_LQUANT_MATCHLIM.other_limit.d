BEGIN { @ = lquantize(arg0, 0, 10); @ = lquantize(arg0, 0, 20); }
