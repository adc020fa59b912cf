/* Constant expressions are folded in 64 bits; what does not fit the type that C gives it gets one of 64 bits. */
BEGIN
{
	trace((1 << 63) - 1);
	trace(1 << 63);
	trace(1 << 40);
	trace(2147483647 + 1);
	trace(-2147483647 - 1);
	trace(-2147483647 - 2);
	trace(1000000 * 1000000);
	trace(~0);
	trace(~0u);
	trace(1u - 2);
	trace(0xffffffff + 1);
	trace(-1 + 1u);
	trace((1 << 32) >> 32);
	trace((1 << 32) == 0);
	trace((char)(1 << 8));
	trace((int)(1 << 40));
	narrow = 1 << 4;
	wide = 1 << 40;
}
