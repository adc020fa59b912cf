/* The image's head, which the tracer fills in. It has its own file because the agent's other code
 * must load these words at run time. */
#include "agent.h"

__attribute__((section(".image"), used, aligned(64)))
const struct np_image np_header = { .magic = NP_MAGIC };

const u64 np_zeros[8] = { 0 };
