/* The agent's functions.
 *
 * All but np_enter return nothing and change no register and no SIMD state
 * (no_caller_saved_registers, -mgeneral-regs-only). All may be called only from a handler, with the
 * calling thread's `context`. Those that may fail set context->fault (they never clear it: a clause
 * starts with 0) and leave a harmless result. */
#ifndef NANOPROBE_CONTRACT_FUNCTIONS_H
#define NANOPROBE_CONTRACT_FUNCTIONS_H

struct np_context;

/* rax = the calling thread's context, or 0 (a forked child, no room, stopped). Called by detours on a table miss. */
u64 np_enter(void);
/* The thread of this context has changed: reads its id again, and zeroes thread-local variables. */
void np_thread_changed(struct np_context *context);
/* result = address of a scratch copy of `bytes` bytes at `address`. */
void np_copyin(struct np_context *context, u64 address, u64 bytes);
/* result = address of a NUL-terminated scratch copy of at most `limit` bytes, the NUL included; limit 0: strsize. */
void np_copyinstr(struct np_context *context, u64 address, u64 limit);
/* result = the integer of 1, 2, 4 or 8 bytes at `address`, zero-extended. */
void np_load(struct np_context *context, u64 address, u64 bytes);
/* result = length of the string at `string` (arena or scratch memory), at most strsize. */
void np_strlen(struct np_context *context, u64 string);
/* result = <0, 0, >0, as strcmp over at most strsize bytes. */
void np_strcmp(struct np_context *context, u64 left, u64 right);
/* Copies a string into a variable of `capacity` bytes, cut there, NUL-terminated, the rest zeroed. */
void np_strcpy(struct np_context *context, u64 destination, u64 source, u64 capacity);
/* alloca: result = address of `bytes` zero bytes of scratch memory. */
void np_alloca(struct np_context *context, u64 bytes);
/* copyinto and bcopy: `bytes` bytes at `address` to `destination`, which must be scratch memory
 * that the clause has taken. */
void np_copyinto(struct np_context *context, u64 address, u64 bytes, u64 destination);
/* Stores the low `bytes` bytes of a value into scratch memory that the clause has taken, or one
 * byte right after it. Any other address is a bad address. */
void np_store_scratch(struct np_context *context, u64 address, u64 bytes, u64 value);
/* Copies `bytes` bytes at `address` to the agent's own memory (a reserved record, a variable), aligned to 8. */
void np_fetch_into(struct np_context *context, u64 destination, u64 address, u64 bytes);
/* The subroutines of D on strings and numbers, with their names in D. The strings are in the agent's own memory; a
 * string result is a copy in scratch memory. np_strchr with `last` is strrchr, np_strcase with `upper` is toupper,
 * else tolower. np_strtok takes the token off the string variable `state`. np_inet_ntop is also inet_ntoa and
 * (short_form) inet_ntoa6. np_strchr, np_strstr, np_strtok and np_json yield 0 when nothing is found. */
void np_strjoin(struct np_context *context, u64 left, u64 right);
void np_strchr(struct np_context *context, u64 string, u64 wanted, u64 last);
void np_strstr(struct np_context *context, u64 string, u64 wanted);
void np_strtok(struct np_context *context, u64 state, u64 separators);
void np_substr(struct np_context *context, u64 string, u64 index, u64 count);
void np_index(struct np_context *context, u64 string, u64 wanted, u64 position);
void np_rindex(struct np_context *context, u64 string, u64 wanted, u64 position);
void np_strcase(struct np_context *context, u64 string, u64 upper);
void np_basename(struct np_context *context, u64 string);
void np_dirname(struct np_context *context, u64 string);
void np_cleanpath(struct np_context *context, u64 string);
void np_lltostr(struct np_context *context, u64 value, u64 base);
void np_strtoll(struct np_context *context, u64 string, u64 base);
void np_inet_ntop(struct np_context *context, u64 family, u64 address, u64 short_form);
void np_link_ntop(struct np_context *context, u64 type, u64 address);
void np_rand(struct np_context *context);
void np_json(struct np_context *context, u64 text, u64 path);
/* copyout: `bytes` bytes of scratch memory that the clause has taken to the program's memory. copyoutstr: a string
 * in the agent's own memory with its NUL, at most `bytes` bytes of it. */
void np_copyout(struct np_context *context, u64 buffer, u64 address, u64 bytes);
void np_copyoutstr(struct np_context *context, u64 string, u64 address, u64 bytes);
/* The results of these three functions. np_speculation: the number of a free speculation, which is now taken (0:
 * none). np_speculate: whether this speculation is taken and has room for a record of `bytes`. np_end_speculation:
 * its number if it was taken and is now ended, else 0. */
void np_speculation(struct np_context *context);
void np_speculate(struct np_context *context, u64 id, u64 bytes);
void np_end_speculation(struct np_context *context, u64 id);
/* Building of keys: the clause resets key_bytes (by a store of 0), and these functions advance it. */
void np_key_integer(struct np_context *context, u64 value);
void np_key_string(struct np_context *context, u64 string);
void np_key_stack(struct np_context *context, u64 frames);
/* result = address of the value words of (aggregation, key), made zero when new; 0 when there is no room (counted). */
void np_aggregate(struct np_context *context, u64 aggregation, u64 value_words);
/* These functions update value words: the words that np_aggregate has found (context->result), or a static slot. */
void np_quantize(struct np_context *context, u64 words, u64 value, u64 weight);
void np_lquantize(struct np_context *context, u64 words, u64 value, u64 weight, u64 parameters);
void np_llquantize(struct np_context *context, u64 words, u64 value, u64 weight, u64 parameters);
void np_stddev(struct np_context *context, u64 words, u64 value);
/* Dynamic variables; the key is in context->key. get: result = address of the value or 0; value_bytes as declared.
 * store: writes `value` (an integer, or the address of a string when value_bytes > 8); zero or NULL deletes. */
void np_dynamic_get(struct np_context *context, u64 variable, u64 value_bytes);
void np_dynamic_store(struct np_context *context, u64 variable, u64 value_bytes, u64 value);
/* result = address of the header of a record of `bytes` bytes in the ring, with its header filled
 * in (epid, bytes, tsc, cpu, tid), or 0 when there is no room (a drop, counted). np_commit
 * publishes the record; a clause that fails does not call it. */
void np_reserve(struct np_context *context, u64 epid, u64 bytes);
void np_commit(struct np_context *context);
/* Writes at `destination` (in a reserved record): u64 number of frames, then at most `frames` frames. */
void np_ustack(struct np_context *context, u64 destination, u64 frames);
/* result = the caller's address, by the same unwinding. */
void np_ucaller(struct np_context *context);
/* result = the thread's errno; 0 if the place of errno is unknown. */
void np_errno(struct np_context *context);
/* result = the number of the goroutine that the thread runs. The word at `slot` from the thread pointer leads to its
 * `g`. `offsets` has three offsets of 16 bits: of the m in a g, of the g that it runs in an m, and of the number in
 * that g. If the thread runs no goroutine, the result is 0; with `task`, it is a number that stands for the thread and
 * that no goroutine has. */
#define NP_TASK_OF_THREAD (1UL << 63)
void np_goroutine(struct np_context *context, u64 slot, u64 offsets, u64 task);
/* result = the path of an open file, of the current directory (AT_FDCWD) or of the root; a string,
 * in scratch memory. */
enum { NP_PATH_OF_FOLDER = -100, NP_PATH_OF_ROOT = -101, NP_PATH_ROOM = 64 };
/* With the numbers of a device, or with the number of a process: not an open file. */
#define NP_PATH_OF_DEVICE (1UL << 61)
#define NP_PATH_OF_PROGRAM (1UL << 60)
void np_path(struct np_context *context, u64 descriptor);
/* result = of the file of a descriptor, 0: whether it is a regular file or a block device; 1: the device that it is
 * on, or that it is, major << 32 | minor. 0 if it is not open. The file system is not asked. */
void np_file_status(struct np_context *context, u64 descriptor, u64 part);
/* result = of the file system of a descriptor, 0: its name, 1: where it is mounted; a string, in scratch memory.
 * `mounts` has a line for each: the number of the mount, the device's numbers, the name, the folder. The file system
 * is not asked. */
void np_file_system(struct np_context *context, u64 descriptor, u64 part, u64 mounts);
/* result = the bytes of the parts of `count` struct iovec. */
void np_vector_bytes(struct np_context *context, u64 address, u64 count);
/* result = where a signal handler begins: 0: something else than the delivery of `signal` has led the thread to `site`;
 * NP_DELIVERED; NP_DELIVERED_WITH_INFORMATION: the handler's second argument is the address of a siginfo. `stack` is
 * the stack pointer. `mixed` stands for the other registers, rcx + 3 r8 + 5 r9 + 7 r10 + 11 r11 + 13 rax. */
enum { NP_DELIVERED = 1, NP_DELIVERED_WITH_INFORMATION = 2 };
void np_signal_frame(struct np_context *context, u64 stack, u64 signal, u64 site, u64 mixed);
/* result = of an internet socket, by its descriptor; 0 if it has no such part. Protocol: 6 for TCP, 17 for UDP, 0 for
 * everything else. Version: 4 or 6. Local, peer, named, connected: the port of this end. The peer is the kernel's, also
 * before and after a connection, else what is in the struct sockaddr at `given`; named: the other way round. Connected:
 * the peer during a connection. Cookie: a number that no other socket has. */
enum {
	NP_SOCKET_PROTOCOL,
	NP_SOCKET_VERSION,
	NP_SOCKET_LOCAL,
	NP_SOCKET_PEER,
	NP_SOCKET_NAMED,
	NP_SOCKET_COOKIE,
	NP_SOCKET_CONNECTED,
};
void np_socket(struct np_context *context, u64 descriptor, u64 part, u64 given);
/* result = the address of an end, or "<none>"; a string, in scratch memory. */
void np_socket_address(struct np_context *context, u64 descriptor, u64 which, u64 given);
/* result = the bytes that `count` struct mmsghdr say were moved. */
void np_message_bytes(struct np_context *context, u64 address, u64 count);
/* result = the name of the thread; a string, in scratch memory. */
void np_thread_name(struct np_context *context);
/* The results of these four functions: ns since boot; CPU time of the thread in ns; ns since the epoch; the number
 * of the CPU. `tsc` is the counter that the clause has already read for its record; 0: it is read now. */
void np_timestamp(struct np_context *context, u64 tsc);
void np_vtimestamp(struct np_context *context);
void np_walltimestamp(struct np_context *context, u64 tsc);
void np_cpu(struct np_context *context);
/* Ends a clause that failed: writes an error record with context->fault; busy stays as it is. */
void np_error(struct np_context *context, u64 action);
/* exit(status): no handler runs after this, in any thread. */
void np_exit(struct np_context *context, u64 status);
/* Called after the dynamic linker has changed its list of libraries: counts the event and waits, at most a minute
 * and only for a living tracer. An internal detour calls this as a handler. */
void np_library_event(struct np_context *context);
/* np_library_event as a handler's entry: the context is in r15. */
void np_library_event_handler(void);
/* The handlers at a system call (calls.c), with the context in r15 and a struct np_call_site as enabling. begin
 * remembers the call's number, end finds it again. entry and return call the clause's handler, if the clause is
 * enabled for that number. */
void np_call_begin_handler(void);
void np_call_end_handler(void);
void np_call_entry_handler(void);
void np_call_return_handler(void);
/* In place of return: increments the counter of that number. */
void np_call_count_handler(void);
/* Replaces the return address at `slot`. Yields the address of the instance; 0: no instance was free, and the call
 * is counted as missed. May be called at a function's first instruction, whatever else runs in this thread. */
u64 np_return_take(struct np_context *context, u64 slot, u64 stub);
/* For detours: slot in rsi, stub in rax, context in r15; changes rax and flags only. */
void np_return_take_at(void);
/* As np_return_take, at a jump to another function with which a function ends. If a thread arrives at the jump
 * twice with the same slot, the other function was entered twice, and returns twice. */
u64 np_return_take_at_jump(struct np_context *context, u64 slot, u64 stub);
void np_return_take_at_jump_from(void);
/* For a detour at the entry of a function that looks at its own return address: restores the real
 * one. Needs no context; changes rax and flags only. */
void np_return_give_back(void);
/* The target of thunks, which jump to it. np_frame is on the stack, and the real address above it: see returns.h. */
void np_return_arrive(void);
/* The targets of stubs, which jump to them: with the context in r15, and without a context. */
void np_return_leave(void);
void np_return_leave_bare(void);
/* Restores the real return addresses on the calling thread's stack. Needs neither a context nor the
 * parent process. */
void np_return_put_back(void);
/* Restores all real return addresses, on all stacks. No address is replaced until the tracer answers. */
void np_return_suspend(void);
/* Signal handlers (SA_SIGINFO), and their restorer. */
void np_on_trap(i32 signal, void *information, void *ucontext);
void np_on_fault(i32 signal, void *information, void *ucontext);
void np_restorer(void);
/* np_image.guests: another tracer's agent, which is asked first for each signal. Not 0: the signal is dealt with, and
 * the thread continues with the state in `ucontext`. With -signal, when no agent has dealt with it: not 0 if one of the
 * agent's relocated instructions has raised it; `ucontext` now has the original address. */
typedef int (*np_guest_hook)(i32 signal, void *information, void *ucontext);
/* The function of this type in each agent. */
int np_on_signal_of_host(i32 signal, void *information, void *ucontext);
/* Executes the instruction that a struct np_emulation describes, on the registers r8 .. flags of a struct
 * np_ucontext. It has the ordinary calling convention. 0: only the processor can execute the instruction, and
 * nothing has changed. */
int np_emulate(const struct np_emulation *emulation, void *ucontext);
/* np_image.fault_hook: called for a signal that an instruction has raised, before the program gets it. `original`
 * is the instruction's address for the program; `pushed` is the number of words by which the stack is deeper than
 * at a fault of the original. Not 0: the thread continues with the state in `ucontext`. */
typedef int (*np_fault_hook)(i32 signal, void *ucontext, u64 original, u64 pushed);
/* np_image.event_hook: called with the siginfo of a SIGTRAP that a perf event has raised (si_code TRAP_PERF) or may
 * have raised (TRAP_BRKPT, which int1 raises, too). `original` is the original address of the place where the thread
 * continues, if it is known. Not 0: the event was the library's, and the thread continues with the state in
 * `ucontext`. */
typedef int (*np_event_hook)(const void *siginfo, void *ucontext, u64 original, u64 pushed);
/* Called before a system call of the program that concerns, or may concern, signals, seccomp or a new thread
 * (shims.c). It has the ordinary calling convention, and runs in any thread and any process. `lends`: no code
 * reads the register with the address of the call's mask after the call, so that register may be changed.
 * Or NP_SHIM_INTERRUPT: the call is made by `int $0x80` (interrupts.c).
 * `syscall`: the instruction's address. 0: make the system call, with the current registers. 1: the call was made,
 * and rax is its result. */
#define NP_SHIM_INTERRUPT 2UL
u64 np_shim_syscall(struct np_registers *registers, u64 lends, u64 syscall);

#endif
