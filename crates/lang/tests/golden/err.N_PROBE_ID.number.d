42 { trace(1); }
