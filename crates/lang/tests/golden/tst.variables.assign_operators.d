int x; uint64_t y; char c;
BEGIN { x += 1; x -= y; y *= 2; c /= 3; y %= 7; c <<= 2L; x >>= y; x &= 1; x ^= y; c |= 0x80; }
