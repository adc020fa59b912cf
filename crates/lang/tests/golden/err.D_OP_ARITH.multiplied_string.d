BEGIN { trace(2 * execname); }
