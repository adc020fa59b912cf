BEGIN { trace((foo_t)arg0); }
