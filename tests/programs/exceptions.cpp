// Exceptions and longjmp through twenty probed frames.
// exceptions [rounds]
#include <csetjmp>
#include <stdexcept>
#include <string>
#include <thread>
#include "check.h"

static thread_local long destroyed;
static thread_local long entered;

struct Guard {
	long weight;
	explicit Guard(long weight) : weight(weight) {}
	~Guard() { destroyed += weight; }
};

struct Odd : std::runtime_error {
	long value;
	Odd(long value) : std::runtime_error("odd " + std::to_string(value)), value(value) {}
};

static thread_local std::jmp_buf jump;

enum Way { RETURN, THROW, RETHROW, JUMP };

extern "C" PROBED long frame_bottom(long value, Way way)
{
	entered++;
	if (way == THROW || way == RETHROW)
		throw Odd(value);
	if (way == JUMP)
		std::longjmp(jump, (int)value + 1);
	return value;
}

// Twenty frames, each with an object to destroy; the tenth may catch and throw on.
template <int depth> PROBED long frame(long value, Way way)
{
	entered++;
	if constexpr (depth == 0) {
		return frame_bottom(value, way) + 1;
	} else if constexpr (depth == 10) {
		Guard guard(1);
		if (way != RETHROW)
			return frame<depth - 1>(value, way) + 1;
		try {
			return frame<depth - 1>(value, way) + 1;
		} catch (const Odd &) {
			throw;
		}
	} else {
		Guard guard(1);
		return frame<depth - 1>(value, way) + 1;
	}
}

extern "C" PROBED long frame_outer(long value, Way way)
{
	long result = frame<19>(value, way);
	DO_AFTER_CALL(result);
	return result;
}

// Frames without destructors: longjmp over a destructor that does something is undefined.
template <int depth> PROBED long plain_frame(long value, Way way)
{
	entered++;
	if constexpr (depth == 0)
		return frame_bottom(value, way) + 1;
	else
		return plain_frame<depth - 1>(value, way) + 1;
}

__attribute__((noinline)) static long jump_out(long value)
{
	int code = setjmp(jump);
	if (code == 0)
		plain_frame<19>(value, JUMP);
	return code;
}

static long rounds;

static uint64_t work()
{
	uint64_t checksum = MIX_START;
	for (long round = 0; round < rounds; round++) {
		destroyed = entered = 0;
		CHECK(frame_outer(round, RETURN) == round + 20);
		CHECK(destroyed == 19 && entered == 21);

		for (Way way : {THROW, RETHROW}) {
			destroyed = entered = 0;
			long caught = -1;
			try {
				frame_outer(round, way);
			} catch (const Odd &odd) {
				caught = odd.value;
				CHECK(std::string(odd.what()) == "odd " + std::to_string(round));
			}
			CHECK(caught == round && destroyed == 19 && entered == 21);
		}

		entered = 0;
		long jumped = jump_out(round);
		CHECK(jumped == round + 1 && entered == 21);
		CHECK(plain_frame<19>(round, RETURN) == round + 20);
		checksum = mix(checksum, (uint64_t)(round + jumped));
	}
	return checksum;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	rounds = number(argc, argv, 1, 200);
	uint64_t other = 0;
	std::thread thread([&] { other = work(); });
	uint64_t checksum = work();
	thread.join();
	CHECK(other == checksum);
	// Per thread and round: frame_outer 3 times, left by return once; frame_bottom 5 times, left by return twice.
	printf("outer_entries %ld\nouter_returns %ld\nbottom_entries %ld\nbottom_returns %ld\n", rounds * 6, rounds * 2,
	       rounds * 10, rounds * 4);
	return finish(checksum);
}
