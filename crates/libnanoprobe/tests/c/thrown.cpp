// Handlers that throw and catch, on functions that exceptions pass through; argv[1] are the probes' flags.
#include <nanoprobe.h>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#define PROBED extern "C" __attribute__((noinline, noclone, no_sanitize_thread))

static int before, behind, entered, left;

__attribute__((noinline)) static void throws(int &counter)
{
	asm volatile("" ::: "memory");
	throw &counter;
}

static void catches(int &counter)
{
	try {
		throws(counter);
	} catch (int *thrown) {
		++*thrown;
	}
}

PROBED int leaves(int value)
{
	asm volatile("" ::: "memory");
	if (value % 2)
		throw std::runtime_error("odd");
	asm volatile("" ::: "memory");
	return value;
}

int main(int, char **arguments)
{
	unsigned flags = static_cast<unsigned>(std::atoi(arguments[1]));
	long sum = 0;
	int through = 0, forms = 0;
	for (int form = NP_RETPROBE_EXITS; form <= NP_RETPROBE_ADDRESS; form++, forms++) {
		np_probe probes[3]{};
		for (np_probe &probe : probes) {
			probe.size = sizeof(probe);
			probe.symbol = "leaves";
			probe.flags = flags;
			probe.pre_handler = [](np_probe *, np_regs *) { catches(before); return 0; };
			probe.post_handler = [](np_probe *, np_regs *, unsigned long) { catches(behind); };
			if (np_register_probe(&probe))
				return 1;
		}
		np_retprobe returns{};
		returns.probe.size = sizeof(returns);
		returns.probe.symbol = "leaves";
		returns.probe.flags = flags;
		returns.form = form;
		returns.entry_handler = [](np_retprobe_instance *, np_regs *) { catches(entered); return 0; };
		returns.handler = [](np_retprobe_instance *, np_regs *) { catches(left); return 0; };
		if (np_register_retprobe(&returns))
			return 2;
		for (int value = 0; value < 100; value++) {
			try {
				sum += leaves(value + 100 * forms);
			} catch (const std::runtime_error &) {
				through++;
				sum += value + 100 * forms;
			}
		}
		if (np_unregister_retprobe(&returns))
			return 3;
		for (np_probe &probe : probes)
			if (np_unregister_probe(&probe))
				return 4;
	}
	std::printf("%d before, %d behind, %d entered, %d left, %d through, sum %ld\n", before, behind, entered, left, through, sum);
	return 0;
}
