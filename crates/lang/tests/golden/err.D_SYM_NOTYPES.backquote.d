BEGIN { trace(libc.so.6`environ); }
BEGIN { trace(`x); }
