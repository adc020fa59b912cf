BEGIN { trace(1); trace("s"); trace(arg0 + 1); trace((char)1); trace((int *)arg0); }
