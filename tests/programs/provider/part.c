/* The second object of own, with the same header. */
#include "own.h"

void other(long i);
int other_enabled(void);

void other(long i)
{
	OTHER__PART_DONE(i);
	OWN_ONE((int)i + 1000);
}

int other_enabled(void)
{
	return OTHER__PART_DONE_ENABLED();
}
