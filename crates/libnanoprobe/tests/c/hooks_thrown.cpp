// Exceptions go through hooks: those of replacements that are called, and of functions that the replacements call.
#include <nanoprobe.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

static int nothing(np_retprobe_instance *, np_regs *)
{
	return 0;
}

static long leaf_calls;
__attribute__((noinline, noclone)) static long leaf(long value)
{
	__asm__ volatile("" : "+r"(value));
	return value + 1;
}

__attribute__((noinline, noclone)) static long throws(long value)
{
	__asm__ volatile("" ::: "memory");
	if (value % 2)
		throw std::runtime_error("odd");
	return value;
}

static long leaf_instead(long value)
{
	leaf_calls++;
	if (value % 2)
		throw std::runtime_error("odd");
	return value + 2;
}

static long (*original)(long);
static long throws_instead(long value)
{
	return original(value) + 1;
}

template <typename Function> static int caught(Function function, long difference)
{
	int count = 0;
	for (long value = 0; value < 100; value++) {
		try {
			if (function(value) != value + difference)
				std::abort();
		} catch (const std::runtime_error &) {
			count++;
		}
	}
	return count;
}

static void check(int error)
{
	if (error) {
		std::fprintf(stderr, "%s: %s\n", np_strerror(error), np_last_error());
		std::exit(1);
	}
}

int main()
{
	check(np_hook(reinterpret_cast<void *>(leaf), reinterpret_cast<void *>(leaf_instead), nullptr));
	int first = caught(leaf, 2);
	np_retprobe returns{};
	returns.probe.size = sizeof(returns);
	returns.probe.addr = reinterpret_cast<void *>(throws);
	returns.handler = nothing;
	returns.form = NP_RETPROBE_EXITS;
	check(np_register_retprobe(&returns));
	check(np_hook(reinterpret_cast<void *>(throws), reinterpret_cast<void *>(throws_instead),
		      reinterpret_cast<void **>(&original)));
	int second = caught(throws, 1);
	std::printf("%d caught, %d caught, %lu returned\n", first, second,
		    static_cast<unsigned long>(np_probe_hits(&returns.probe)));
	check(np_unhook(reinterpret_cast<void *>(leaf)));
	check(np_unhook(reinterpret_cast<void *>(throws)));
	check(np_unregister_retprobe(&returns));
	return 0;
}
