/* Two functions to be probed, by the macros of seed_003/check.h. */
#ifndef FOOBAR_H
#define FOOBAR_H

#include "seed_003/check.h"

#include <stdint.h>

FUNCTION uint64_t foo(uint64_t value)
{
	OPAQUE;
	return value * 3 + 1;
}

FUNCTION uint64_t bar(uint64_t value)
{
	OPAQUE;
	return value * 5 + 2;
}

#endif
