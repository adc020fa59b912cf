// The same header from C++: a lambda as a handler, an exception through a probed function.
#include <nanoprobe.h>
#include <cstdio>
#include <stdexcept>

extern "C" __attribute__((noinline)) int thrower(int value)
{
	if (value > 1)
		throw std::runtime_error("thrown");
	return value + 1;
}

int main()
{
	static int hits;
	np_probe probe = { NP_SIZE(np_probe) };
	probe.addr = reinterpret_cast<void *>(thrower);
	probe.pre_handler = [](np_probe *, np_regs *) -> int {
		hits++;
		return 0;
	};
	if (np_register_probe(&probe))
		return 1;
	int caught = 0;
	for (int round = 0; round < 100; round++) {
		try {
			thrower(round % 4);
		} catch (const std::runtime_error &) {
			caught++;
		}
	}
	if (np_unregister_probe(&probe))
		return 1;
	std::printf("%d %d\n", hits, caught);
	return 0;
}
