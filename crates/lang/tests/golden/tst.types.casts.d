BEGIN { trace((char)300); trace((unsigned char)-1); trace((int)0x1ffffffff); trace((uint64_t)-1); trace((int8_t)arg0); trace((long)(int)arg0); (void)arg1; }
