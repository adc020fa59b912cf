// Exceptions through functions with return probes, caught within and without; argv[1] is the form.
#include <nanoprobe.h>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

// A function that ThreadSanitizer instruments reads its return address, so the address cannot be replaced.
#define PROBED __attribute__((noinline, noclone, no_sanitize_thread))

static volatile int entered, returned;

extern "C" PROBED int inner(int value)
{
	asm volatile("" ::: "memory");
	if (value % 3 == 1)
		throw std::runtime_error("one");
	asm volatile("" ::: "memory");
	return value;
}

// Catches the exceptions that inner throws for odd values, and lets those for even values through.
extern "C" PROBED int outer(int value)
{
	std::string text(static_cast<size_t>(value % 50), 'x');
	try {
		return inner(value) + static_cast<int>(text.size());
	} catch (const std::runtime_error &) {
		if (value % 2 == 0)
			throw;
	}
	return -1;
}

int main(int count, char **arguments)
{
	np_retprobe probes[2] = {};
	const char *symbols[] = { "inner", "outer" };
	for (int index = 0; index < 2; index++) {
		np_retprobe &probe = probes[index];
		probe.probe.size = sizeof(probe);
		probe.probe.symbol = symbols[index];
		probe.form = count > 1 ? std::atoi(arguments[1]) : NP_RETPROBE_AUTO;
		probe.entry_handler = [](np_retprobe_instance *, np_regs *) -> int {
			entered = entered + 1;
			return 0;
		};
		probe.handler = [](np_retprobe_instance *, np_regs *) -> int {
			returned = returned + 1;
			return 0;
		};
		int error = np_register_retprobe(&probe);
		if (error) {
			std::printf("%s: %s\n", symbols[index], np_last_error());
			return 1;
		}
	}
	int caught = 0;
	long sum = 0;
	for (int value = 0; value < 600; value++) {
		try {
			sum += outer(value);
		} catch (const std::runtime_error &) {
			caught++;
		}
	}
	std::printf("%ld, %d caught, %d calls\n", sum, caught, entered);
	for (auto &probe : probes) {
		unsigned long hits = np_probe_hits(&probe.probe), missed = np_retprobe_nmissed(&probe);
		unsigned long abandoned = np_retprobe_abandoned(&probe);
		// A call that is not counted yet is still active. There is at most one, since all calls have the same frame.
		std::printf("%lu missed, %s\n", missed, 600 - hits - missed - abandoned <= 1 ? "the rest abandoned" : "WRONG");
		if (np_unregister_retprobe(&probe))
			return 1;
	}
	unsigned long inner_hits = 400;
	std::printf("%s\n", static_cast<unsigned long>(returned) >= inner_hits + 400 ? "all plain returns" : "LOST");
	return 0;
}
