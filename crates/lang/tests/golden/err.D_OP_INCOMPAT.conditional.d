BEGIN { trace(pid ? 1 : "s"); }
