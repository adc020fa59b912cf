/* The destinations of traps, and the origins of relocated instructions: see redirects.c. */
#ifndef NANOPROBE_REDIRECTS_H
#define NANOPROBE_REDIRECTS_H

#include "agent.h"

/* The last redirect at or before `address`; yields whether there is one. */
int np_redirect_before(u64 address, struct np_redirect *redirect);

/* The original address of the instruction whose relocated copy is at `address`; `address`
 * itself when unknown. `pushed`: by how many words the stack is deeper there than at a fault of
 * the original. */
u64 np_original_address(u64 address, u64 *pushed);

/* Whether this is a detour's own code and not a relocated instruction. */
int np_is_detours_own(u64 address);

#endif
