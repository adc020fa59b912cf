BEGIN { trace(0); trace(2147483647); trace(2147483648); trace(0x7fffffff); trace(0xffffffff); trace(0x100000000);
	trace(18446744073709551615); trace(1u); trace(1L); trace(1ull); trace(017); trace(4294967296u); trace(0x8000000000000000); }
