/* See guarded.c. */
#define PLAIN
#include "guarded.c"
