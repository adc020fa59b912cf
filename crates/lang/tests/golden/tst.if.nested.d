BEGIN { x = 1; if (x) { if (pid) { trace(1); } else if (uid) { trace(2); } else { trace(3); } } }
