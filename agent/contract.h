/* The contract between four parts: the agent (this folder), the tracer (crates/arena mirrors every
 * structure below, field by field, and a test compares both sides), the compiled handlers
 * (crates/codegen) and the detours (crates/patch).
 *
 * Bump NP_VERSION when any offset, size or meaning below changes. An arena of another version is
 * only read by `nanoprobe restore`, and only its frozen parts: struct np_control up to and
 * including `regions`, struct np_site, struct np_region, and its fields about semaphores.
 *
 * Five kinds of memory in the target:
 *
 *   code      private, r-x, written by the tracer through /proc/PID/mem: the agent image (its first bytes are struct
 *             np_image), the redirect table, the handlers, and, near each module, the detours. A forked child has a
 *             copy, which works whatever happens to the tracing of the parent.
 *   table     private, rw-: struct np_thread_table. All before `blocked` is MADV_WIPEONFORK: a child finds zeros, so
 *             it never finds a context of its parent's. Of the rest it has a copy.
 *   returns   private, rw-: struct np_return_pool. A child's stack has replaced return addresses on it too, so it has a
 *             copy.
 *   stacks    private, rw-: stacks for handlers that are called on small stacks; only in processes that have these.
 *   arena     shared with the tracer, rw-: struct np_control, descriptors, strings, variables, one context a thread.
 *
 * Addresses are the target's unless a field says `offset` (bytes from the start of the arena).
 */
#ifndef NANOPROBE_CONTRACT_H
#define NANOPROBE_CONTRACT_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef int i32;
typedef long i64;

#define NP_MAGIC 0x424f52504f4e414eUL /* "NANOPROB", little endian */
#define NP_VERSION 13

#include "contract/control.h"
#include "contract/image.h"
#include "contract/context.h"
#include "contract/tables.h"
#include "contract/hotspot.h"
#include "contract/runtimes.h"
#include "contract/v8.h"
#include "contract/functions.h"

#endif
