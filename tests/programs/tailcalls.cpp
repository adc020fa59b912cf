// Functions that end by a jump to another function.
//
//     tailcalls sleeps|mutual|throws|jumps|threads|finds [count]
#include <chrono>
#include <csetjmp>
#include <ctime>
#include <dlfcn.h>
#include <stdexcept>
#include <thread>
#include <vector>
#include "check.h"

static thread_local std::jmp_buf place;
static thread_local long caught;

extern "C" {
PROBED long query(long value)
{
	timespec time = {0, 5000000};
	nanosleep(&time, nullptr);
	return value * 2;
}

/* jmp query */
PROBED long handle_request(long value) { return query(value + 1); }

PROBED long pong(long value);
PROBED long ping(long value) { return value == 0 ? 100 : pong(value - 1); }
PROBED long pong(long value) { return value == 0 ? 200 : ping(value - 1); }

PROBED long leap(long value)
{
	if (value % 2)
		std::longjmp(place, 1);
	return value;
}
PROBED long before_leap(long value) { return leap(value + 1); }

PROBED long fail(long value)
{
	if (value % 2)
		throw std::runtime_error("odd");
	return value;
}
PROBED long before_fail(long value) { return fail(value + 1); }

/* dlsym learns from its return address which library is meant. */
PROBED void *find_next(const char *name) { return dlsym(RTLD_NEXT, name); }
}

// The code to which longjmp returns has nothing that could be spoiled.
PROBED static long try_leap(long value)
{
	long sum = setjmp(place) ? 0 : before_leap(value);
	DO_AFTER_CALL(sum);
	return sum;
}

static long rounds_of(const char *mode, long count)
{
	long sum = 0;
	for (long i = 0; i < count; i++) {
		if (!strcmp(mode, "throws")) {
			try {
				sum += before_fail(i);
			} catch (const std::runtime_error &) {
				caught++;
			}
		} else if (!strcmp(mode, "jumps")) {
			sum += try_leap(i);
		} else {
			sum += ping(i % 100) + pong(i % 7);
		}
	}
	return sum;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	const char *mode = argc > 1 ? argv[1] : "mutual";
	long count = number(argc, argv, 2, 10);
	uint64_t checksum = MIX_START;
	if (!strcmp(mode, "sleeps")) {
		long longest = 0;
		for (long i = 0; i < count; i++) {
			auto start = std::chrono::steady_clock::now();
			CHECK(handle_request(i) == 2 * i + 2);
			auto took = std::chrono::steady_clock::now() - start;
			long ns = (long)std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
			longest = ns > longest ? ns : longest;
		}
		printf("longest %ld\n", longest);
	} else if (!strcmp(mode, "finds")) {
		for (long i = 0; i < count; i++)
			CHECK(find_next("getpid") != nullptr);
	} else if (!strcmp(mode, "threads")) {
		std::vector<std::thread> threads;
		std::vector<long> sums(4);
		for (long &sum : sums)
			threads.emplace_back([&sum, count] { sum = rounds_of("mutual", count); });
		for (std::thread &thread : threads)
			thread.join();
		for (long sum : sums)
			checksum = mix(checksum, (uint64_t)sum);
	} else {
		checksum = mix(checksum, (uint64_t)rounds_of(mode, count));
		printf("caught %ld\n", caught);
	}
	return finish(checksum);
}
