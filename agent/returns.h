/* Return addresses that are replaced: at the entry of a function (a kretprobe), or where it jumps to another one.
 *
 * At a function's entry, or at its tail call, its return address is replaced by that of a *thunk*; the function returns
 * there, the handlers run, and the thunk jumps to where the function was called from. What must never be lost is the
 * real address. It is in an *instance*, and each instance has a thunk of its own: so the word on the stack itself says
 * which instance it is, whatever thread returns through it, on whatever stack, copied or moved, in a forked child too.
 *
 *     entry          slot: 0x401136 -> thunk 7     instance 7: { 0x401136, slot, stub of the function }
 *     return         thunk 7:  lea rsp,[rsp-24]; push rax; mov eax, 7; jmp np_return_arrive
 *
 *                    slot          thunk 7          stays until the very end
 *                    slot - 8      the real address
 *                    slot - 16     the instance
 *                    slot - 24     rax, r15, flags  struct np_frame: as in a detour
 *                    stub          handlers, then np_return_leave: slot = real address; the instance is free; jump
 *
 * Instances are in private memory that fork copies (struct np_return_pool). A thread takes them from chunks of its own;
 * one locked instruction claims an instance, which nobody contends for: it is there for signal handlers that come
 * between, and for threads that share a thread pointer.
 *
 * An instance is free again when its function returns. Where that never happens (longjmp, an exception, a thread that
 * ends), it is recycled as soon as its slot no longer holds its thunk: as long as a function may still return through
 * the thunk, the slot does (a thunk changes it last of all). What lies below the stack pointer and still holds a thunk
 * is kept, since nobody can tell it from another live stack: that costs an instance until the stack grows over it.
 *
 * Others who read return addresses:
 *
 *     unwinders        their entries are hooked: np_return_put_back makes the stack above them what it was
 *     a new library    may be an unwinder: np_return_suspend puts everything back, and nothing is taken until the
 *                      tracer has answered that it has hooked what there is to hook; a dead tracer never answers
 *     who reads his    a function that is jumped to and looks at its own return address: np_return_give_back at its
 *                      entry
 *     our ustack()     np_real_return_address
 *     who is detached  the tracer does what np_return_suspend does, and unmaps when no thread is in our code
 *
 * Putting back is one compare-and-swap of the slot: who returns just then goes through the thunk, or past it. The
 * instance stays armed, since a thread may have loaded the thunk's address in the moment before; it is recycled when
 * its slot holds something else than the real address.
 *
 * But between the look at an instance and the swap nobody may return through it and take it again,
 * in the same slot, for a call from elsewhere: the thunk is the same, and that call would return to
 * where the older one was called from. So
 *
 *     for an unwinder      only what the calling thread has taken is put back (whatever stack that is on: the unwinder
 *                          may go on from an alternate one), and what is on its stack (a coroutine's may have come from
 *                          another thread): nobody else returns there. The stack ends at the thread control block, or
 *                          where there is no memory above it
 *     for a new library    nothing is taken from the change of `events` on; should that have been answered meanwhile,
 *                          what is left stays, since unwinders are hooked then
 *
 * Tail calls: the function that was jumped to finds a thunk in the slot and puts its own in front; the two thunks run
 * one after the other. So it is with what is taken at the jumps themselves: the innermost function returns first.
 * Chains are at most NP_RETURN_CHAIN_MAX long, what would be longer is missed.
 */
#ifndef NANOPROBE_RETURNS_H
#define NANOPROBE_RETURNS_H

#include "agent.h"

/* `address`, or where the thunk at `address` leads in the end. */
u64 np_real_return_address(u64 address);

#endif
