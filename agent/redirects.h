/* The destinations of traps, and the origins of relocated instructions: see redirects.c. */
#ifndef NANOPROBE_REDIRECTS_H
#define NANOPROBE_REDIRECTS_H

#include "agent.h"

/* Finds the last redirect at or before `address`. Yields whether there is one. */
int np_redirect_before(u64 address, struct np_redirect *redirect);

/* The original address of the instruction whose relocated copy is at `address`; `address` itself if it is unknown.
 * `pushed`: how many more words the copy has pushed at this place than the original instruction when it faults. */
u64 np_original_address(u64 address, u64 *pushed);

/* Whether the address is in a detour's own code and not in a relocated instruction. */
int np_is_detours_own(u64 address);

#endif
