/* Calls a function with known numbers, for the aggregating functions and the printing.
 * numbered(i, text) for i from -4 to 64; i modulo 3 selects one of three texts. */
#include "check.h"

PROBED long numbered(long value, const char *text, int narrow, unsigned char byte)
{
	return value * value + text[0] + narrow + byte;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	static const char *const texts[3] = {"red", "green", "blue"};
	uint64_t checksum = MIX_START;
	for (long i = -4; i <= 64; i++) {
		const char *text = texts[(i + 6) % 3];
		long value = numbered(i, text, (int)-i, (unsigned char)i);
		CHECK(value == i * i + text[0] - i + (unsigned char)i);
		checksum = mix(checksum, (uint64_t)value);
	}
	return finish(checksum);
}
