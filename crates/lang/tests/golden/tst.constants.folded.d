BEGIN { trace(2 + 3 * 4); trace(1 << 31); trace(1u << 31); trace(7 / -2); trace(7 % -2); trace(-1 > 1u); trace(!5); trace(~0); trace(1 ? 10 : 20L); trace(1 && 0 || 1 ^^ 1); }
