/* Functions that run before and after main: constructors, preinit functions, destructors, exit handlers. */
#include "check.h"

static int order;

PROBED void before_main(int which)
{
	order = order * 10 + which;
}

PROBED void after_main(int which)
{
	order = order * 10 + which;
}

static void preinit(void)
{
	before_main(1);
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit_entry)(void) = preinit;

__attribute__((constructor(200))) static void early(void)
{
	before_main(2);
}

__attribute__((constructor)) static void usual(void)
{
	before_main(3);
}

static void handler(void)
{
	after_main(4);
	CHECK(order == 1234);
}

__attribute__((destructor)) static void destructor(void)
{
	after_main(5);
	CHECK(order == 12345);
	finish(mix(MIX_START, (uint64_t)order));
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	CHECK(order == 123);
	CHECK(atexit(handler) == 0);
	return 0;
}
