char c; short s; int i; long l; unsigned char uc; unsigned int u; unsigned long ul; uint16_t w;
BEGIN { trace(c + s); trace(i + u); trace(l + u); trace(l + ul); trace(uc * w); trace(c << l); trace(l >> c); trace(-uc); trace(c == ul); }
