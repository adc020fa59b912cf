BEGIN { trace(*(int *)arg0); trace(*(unsigned char *)arg1); trace(((uint64_t *)arg0)[3]); trace(**(int **)arg0); trace(*((short *)arg0 + arg1)); }
