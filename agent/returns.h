/* Replaced return addresses: at the entry of a function (a kretprobe), or where it jumps to another one.
 *
 * At a function's entry, or at its tail call, its return address is replaced by that of a *thunk*.
 * The function returns there, the handlers run, and the thunk jumps to the place from which the
 * function was called. The real address must never be lost. It is in an *instance*, and each
 * instance has its own thunk. So the word on the stack identifies the instance, whichever thread
 * returns through it, on whatever stack, copied or moved, and in a forked child, too.
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
 * Instances are in private memory, which fork copies (struct np_return_pool). A thread takes them from its own
 * chunks. One locked instruction claims an instance. There is no contention: the lock is only needed because of
 * signal handlers, and of threads that share a thread pointer.
 *
 * An instance is free again when its function returns. A function may never return (longjmp, an exception, a
 * thread that ends). Then the instance is recycled as soon as its slot no longer holds its thunk. That is safe: as
 * long as a function may still return through the thunk, its slot holds the thunk (a thunk changes the slot as its
 * last step). If a slot below the stack pointer still holds a thunk, the instance is kept, because the slot may be
 * on another live stack. That costs an instance until the stack grows over the slot.
 *
 * Other code that reads return addresses:
 *
 *     unwinders        their entries are hooked: np_return_put_back restores the stack above them
 *     a new library    may be an unwinder: np_return_suspend puts everything back, and nothing is taken until the
 *                      tracer has answered that all unwinders are hooked; a dead tracer never answers
 *     self-readers     a function that is jumped to and reads its own return address: np_return_give_back at its
 *                      entry
 *     our ustack()     np_real_return_address
 *     detaching        the tracer does what np_return_suspend does, and unmaps when no thread is in our code
 *
 * An address is restored by one compare-and-swap of the slot. A function that returns at that moment either goes
 * through the thunk or directly to the real address. The instance stays armed, because a thread may have loaded
 * the thunk's address just before. It is recycled when its slot holds another value than the real address.
 *
 * But between the look at an instance and the swap, it must not happen that a function returns through the
 * instance, and the instance is taken again, with the same slot, for another call. The thunk would be the same,
 * and the later call would return to the caller of the earlier one. So
 *
 *     for an unwinder      only the addresses that the calling thread has taken (on any stack: the unwinder may
 *                          continue from an alternate one) and those on its stack (a coroutine's may have come from
 *                          another thread) are put back: no other thread returns there. The stack ends at the thread
 *                          control block, or where there is no memory above it
 *     for a new library    no address is replaced after the change of `events`. If the tracer has answered meanwhile,
 *                          the other addresses stay, since the unwinders are hooked then
 *
 * Tail calls: the function that was jumped to finds a thunk in the slot and puts its own before it; the two thunks
 * run one after the other. The same holds for instances that are taken at the jumps themselves: the innermost
 * function returns first. A chain has at most NP_RETURN_CHAIN_MAX instances; further calls count as missed. */
#ifndef NANOPROBE_RETURNS_H
#define NANOPROBE_RETURNS_H

#include "agent.h"

/* `address`, or the final destination of the thunk at `address`. */
u64 np_real_return_address(u64 address);

#endif
