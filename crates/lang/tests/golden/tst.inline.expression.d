inline int64_t ELAPSED = timestamp - 5;
BEGIN { trace(ELAPSED + 1); }
