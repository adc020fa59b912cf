BEGIN { trace(1 / 0); }
BEGIN { trace(pid % (1 - 1)); }
BEGIN { x = 1; x /= 0; }
