BEGIN { trace(a["x"]); }
