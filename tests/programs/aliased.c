/* A function of three names, called a hundred times. */
#include "check.h"

PROBED long aliased(long value)
{
	return value * 3 + 1;
}
long other_name(long value) __attribute__((alias("aliased")));
long third_name(long value) __attribute__((alias("aliased")));

int main(int argc, char **argv)
{
	begin(&argc, argv);
	uint64_t checksum = MIX_START;
	for (long i = 0; i < 100; i++) {
		long value = aliased(i);
		CHECK(value == i * 3 + 1);
		checksum = mix(checksum, (uint64_t)value);
	}
	return finish(checksum);
}
