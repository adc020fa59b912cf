BEGIN { @ = lquantize(arg0, 0, 10, 2); }
END { @ = lquantize(arg1, 0, 5 * 2, 1 + 1); }
