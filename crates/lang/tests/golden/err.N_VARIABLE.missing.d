BEGIN { trace(errno); }
BEGIN { trace(curthread); }
