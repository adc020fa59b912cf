BEGIN { /* trace(1); }
