BEGIN { trace(1); };
END { trace(2); }
