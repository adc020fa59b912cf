/* See there. */
#define PLAIN
#include "guarded.c"
