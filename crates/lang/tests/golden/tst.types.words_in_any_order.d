long unsigned int a; int long long b; short unsigned c; signed char d; const volatile unsigned e; unsigned long long f;
BEGIN { trace(a); trace(b); trace(c); trace(d); trace(e); trace(f); }
