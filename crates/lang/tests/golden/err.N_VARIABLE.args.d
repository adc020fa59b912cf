BEGIN { trace(args[0]); }
BEGIN { trace(errno); }
BEGIN { trace(curthread); }
