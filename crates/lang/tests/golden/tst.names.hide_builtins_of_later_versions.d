BEGIN { size_t = 5; trace(size_t); }
