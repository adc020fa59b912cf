/* nanoprobe.h - kprobes for a program's own code.
 *
 * A probe stands on one instruction of the running program. Registering it patches a jump (or, where no jump fits,
 * a breakpoint) over that instruction. Every thread that reaches it runs the handlers, then the displaced
 * instruction, and continues after it. Names and meanings are those of the kernel's kprobes, with np_ in front.
 * Differences are stated below.
 *
 * 	static int before(struct np_probe *probe, struct np_regs *regs)
 * 	{
 * 		return 0;                       // go on with the probed instruction
 * 	}
 *
 * 	static struct np_probe probe = { NP_SIZE(struct np_probe), .symbol = "malloc", .pre_handler = before };
 * 	int error = np_register_probe(&probe);
 * 	if (error)
 * 		fprintf(stderr, "malloc: %s\n", np_strerror(error));
 *
 * Rules for handlers. They run in the thread that hit the probe, in parallel with all other threads and without
 * any lock held, so they must be reentrant. The functions that they call may be probed, too: such a hit is counted
 * in `nmissed`, its handlers are left out, and the instruction is executed. A handler may use the FPU and SIMD
 * registers, unless its probe says NP_PROBE_NO_SIMD. (They are saved around it, unless its code, as it is when the
 * probe is registered, provably leaves them alone: docs/library.md.) It may fork, start processes and end its
 * thread. It must not throw or longjmp out, nor call code that continues on another stack (swapcontext,
 * coroutines).
 *
 * A signal handler of the program that interrupts a probe's handler may leave both by siglongjmp, for example
 * after a SIGSEGV at the end of the stack. Then the thread still counts as inside of the handler, and all its hits
 * are missed. This ends when the thread meets a probe no deeper in its stack than the handler was (under seccomp:
 * never). Unregistering the probe waits for that, for the thread's next call of a function of this header, or for
 * its end.
 *
 * Of the functions of this header handlers may call those marked "handlers may". All others return
 * NP_ERROR_IN_HANDLER, in every kind of handler, and in signal handlers that interrupt one. A replacement (np_hook) is
 * no handler.
 *
 * Rules for the structures. They belong to the caller, must stay where they are while registered, begin with their
 * size (NP_SIZE), and are zero in every field that the caller does not set. So a program built against an older
 * header keeps working. (No older header has smaller structures yet, so a smaller size is NP_ERROR_ARGUMENT.) A
 * program built against a newer header works with an older library as long as it uses no field that the library
 * does not know: NP_ERROR_ARGUMENT where such a field is not zero. All functions may be called from any thread at
 * any time, but not from handlers or signal handlers unless marked. They return 0, or a negative enum np_error.
 */
#ifndef NANOPROBE_H
#define NANOPROBE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NP_API __attribute__((visibility("default")))
#else
#define NP_API
#endif

/* The interface that this header describes; the library's is np_version(). A new minor version only adds. */
#define NP_VERSION_MAJOR 0
#define NP_VERSION_MINOR 1

/* The first initialiser of every structure: its size, which distinguishes the versions of the header. */
#ifdef __cplusplus
#define NP_SIZE(type) sizeof(type)
#else
#define NP_SIZE(type) .size = sizeof(type)
#endif

/* NP_VERSION_MAJOR << 16 | NP_VERSION_MINOR of the library. Handlers may call it. */
NP_API uint32_t np_version(void);

/* ---- errors -------------------------------------------------------------------------------------------------- */

enum np_error {
	NP_OK = 0,
	NP_ERROR_ARGUMENT = -1,       /* a size of 0, neither address nor symbol, both and they differ, unknown flags */
	NP_ERROR_SYMBOL = -2,         /* no module of the program defines the symbol */
	NP_ERROR_NOT_CODE = -3,       /* the address lies in no executable file mapping, or in data among code */
	NP_ERROR_BOUNDARY = -4,       /* no instruction starts there */
	NP_ERROR_FORBIDDEN = -5,      /* black list: this library's own code, and what its handler path needs */
	NP_ERROR_REGISTERED = -6,     /* this structure is registered already */
	NP_ERROR_NOT_REGISTERED = -7, /* this structure is not registered */
	NP_ERROR_UNLOADED = -8,       /* the probed module was unloaded, and the probe with it */
	NP_ERROR_TACTIC = -9,         /* NP_PROBE_JUMP_ONLY, and no jump fits */
	NP_ERROR_BREAKPOINT = -10,    /* another program's breakpoint is there */
	NP_ERROR_UNMOVABLE = -11,     /* the instruction works only at its own address */
	NP_ERROR_EXITS = -12,         /* not all ways out of the function are known */
	NP_ERROR_LIMIT = -13,         /* NP_PROBES_MAX, or no memory near enough */
	NP_ERROR_SYSTEM = -14,        /* the system refuses what patching needs: /proc/self/mem, membarrier, mmap */
	NP_ERROR_IN_HANDLER = -15,    /* called from a handler: it would wait for itself */
	NP_ERROR_NO_WATCHPOINT = -16, /* all debug registers are taken, in some thread of the program */
	NP_ERROR_UNSUPPORTED = -17,   /* this machine or kernel does not support it */
	NP_ERROR_BUSY = -18,          /* something else has replaced this function already */
	NP_ERROR_RETURN_ADDRESS = -19, /* the function's return address cannot be replaced */
	NP_ERROR_PERMISSION = -20,    /* perf_event_open is forbidden: perf_event_paranoid, or a sandbox */
	NP_ERROR_BLOCKED = -21,       /* a thread blocks SIGTRAP, SIGILL, SIGSEGV or SIGBUS: np_last_error() names it. A
	                               * breakpoint that it meets while text changes would end the program. */
	NP_ERROR_AMBIGUOUS = -22      /* several functions of a module have the name, and none of them is global */
};

/* A sentence in English; never NULL. Handlers may call it. */
NP_API const char *np_strerror(int error);

/* The details of this thread's last error: addresses, the nearest instruction starts, the planner's refusal. Valid
 * until the thread's next call of a function of this header; "" if there was no error. */
NP_API const char *np_last_error(void);

/* ---- registers ------------------------------------------------------------------------------------------------ */

/* The thread's state at the probed instruction. Handlers may change every field; the program continues with the
 * changed values. `rip` is the probed instruction's address in a pre-handler. */
struct np_regs {
	uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi;
	uint64_t rip;
	uint64_t rflags;
	uint64_t rsp;
};

/* ---- probes --------------------------------------------------------------------------------------------------- */

struct np_probe;

/* Runs before the probed instruction. 0: the instruction is executed. Not 0: it is not executed, and the thread
 * continues at regs->rip with the registers in `regs`. To skip a function at its entry, pop its return address
 * into rip and set rax. (With rip unchanged the instruction is executed all the same.) The post-handler does not
 * run then. */
typedef int (*np_pre_handler)(struct np_probe *probe, struct np_regs *regs);

/* Runs after the probed instruction, of whatever kind. regs->rip is where the thread continues: after a call, the
 * callee's entry. `flags` is 0. (Branches, calls and returns are emulated for it; the handler does not run after
 * an instruction that faults. NP_ERROR_UNMOVABLE: only the processor can execute the instruction, for example a
 * far jump.) */
typedef void (*np_post_handler)(struct np_probe *probe, struct np_regs *regs, unsigned long flags);

/* Runs when a handler of this probe, or the probed instruction, raised `signal` (SIGSEGV, SIGBUS, SIGFPE, SIGILL);
 * `regs` are the registers at the fault, as if the instruction had been executed in place. Runs in a signal
 * handler.
 *
 *   0        not dealt with: the program's own handler runs, or the program dies
 *   not 0    dealt with. If rip was changed, the thread continues there. Else a faulting handler is abandoned and the
 *            program continues, or the faulting instruction is executed once more, with regs.
 *
 * A fault of the instruction goes to each of its probes, in the order of registration, until one has dealt with it. */
typedef int (*np_fault_handler)(struct np_probe *probe, struct np_regs *regs, int signal);

enum np_probe_flags {
	NP_PROBE_DISABLED = 1 << 0,  /* registered, but fires only after np_enable_probe */
	NP_PROBE_NO_SIMD = 1 << 1,   /* the handlers leave the FPU and SIMD registers alone: they are not saved */
	NP_PROBE_TRAP = 1 << 2,      /* a breakpoint even where a jump fits: for comparison */
	NP_PROBE_JUMP_ONLY = 1 << 3  /* NP_ERROR_TACTIC rather than a breakpoint */
};

struct np_probe {
	size_t size;
	void *addr;                  /* the instruction; NULL: `symbol` says where. Set when registered. */
	const char *symbol;          /* a function, in any module that defines it, or "module:function" (libc:malloc) */
	size_t offset;               /* bytes after addr or symbol */
	np_pre_handler pre_handler;  /* each may be NULL */
	np_post_handler post_handler;
	np_fault_handler fault_handler;
	unsigned flags;              /* enum np_probe_flags */
	void *user;                  /* the caller's */
	void *reserved[4];           /* the library's */
};

/* Any number of probes may stand on one instruction; their handlers run in the order of registration. Once this
 * function has returned, every thread that reaches the instruction fires. */
NP_API int np_register_probe(struct np_probe *probe);
/* Registers all of them, or none: the first error is returned, and nothing stays registered. Costs hardly more
 * than one registration. */
NP_API int np_register_probes(struct np_probe *const *probes, size_t count);
/* When it returns, no thread is in a handler of the probe, nor will be, so the structure may be freed. The
 * instruction is as it was, byte for byte, unless another probe stands on it. NP_ERROR_BLOCKED or NP_ERROR_SYSTEM:
 * the same, except that the instruction is not restored yet. It will be with the next change of the text that
 * succeeds. */
NP_API int np_unregister_probe(struct np_probe *probe);
NP_API int np_unregister_probes(struct np_probe *const *probes, size_t count);
/* Unregisters without waiting: no handler begins any more. When none runs any more, some thread calls `done`: from
 * its next call of any function of this header, or from np_synchronize. */
NP_API int np_unregister_probe_async(struct np_probe *probe, void (*done)(struct np_probe *probe));
/* Waits until everything that np_unregister_probe_async began is done. */
NP_API int np_synchronize(void);
NP_API int np_disable_probe(struct np_probe *probe);
NP_API int np_enable_probe(struct np_probe *probe);

/* How often the probe's handlers ran, and how often they were left out because the hit was inside of a handler. 0
 * when called in a handler. The last counts of an unregistered probe are kept until the structure is registered
 * again, for the last NP_PROBES_MAX such probes. */
NP_API uint64_t np_probe_hits(const struct np_probe *probe);
NP_API uint64_t np_probe_nmissed(const struct np_probe *probe);

/* How an instruction is patched; the words of `nanoprobe -v`. */
enum np_tactic {
	NP_TACTIC_NONE = 0, /* not registered, or nothing enabled there */
	NP_TACTIC_JUMP = 1,
	NP_TACTIC_RUN = 2,
	NP_TACTIC_PUN = 3,
	NP_TACTIC_EVICT = 4,
	NP_TACTIC_TRAP = 5
};
NP_API enum np_tactic np_probe_tactic(const struct np_probe *probe);
NP_API const char *np_tactic_name(enum np_tactic tactic);

/* ---- jumper probes -------------------------------------------------------------------------------------------- */

/* `entry` is a function with the probed function's prototype. It is called before the function, with all its
 * arguments, including those in floating-point registers and those on the stack (NP_JPROBE_STACK bytes of them).
 * The function does not see its changes to the arguments. It ends by np_jprobe_return(), or by returning. */
struct np_jprobe {
	struct np_probe probe; /* addr or symbol; its pre- and post-handlers are the library's */
	void *entry;
};
#define NP_JPROBE_STACK 512

NP_API int np_register_jprobe(struct np_jprobe *probe);
NP_API int np_register_jprobes(struct np_jprobe *const *probes, size_t count);
NP_API int np_unregister_jprobe(struct np_jprobe *probe);
NP_API int np_unregister_jprobes(struct np_jprobe *const *probes, size_t count);
NP_API void np_jprobe_return(void) __attribute__((noreturn));

/* ---- return probes -------------------------------------------------------------------------------------------- */

struct np_retprobe;

/* One call of a probed function. */
struct np_retprobe_instance {
	struct np_retprobe *retprobe;
	void *return_address; /* the real one */
	void *frame;          /* the stack pointer at the function's entry: where the return address lies */
	void *data;           /* data_size bytes, zero at first: from the entry handler to the handler; aligned to 16 */
};

/* The function is left: regs->rip is the return address, regs->rsp is frame + 8, and changes of these two have no
 * effect. regs->rax is the returned value; it and all other registers may be changed. The handler's own result has
 * no meaning yet: return 0. */
typedef int (*np_retprobe_handler)(struct np_retprobe_instance *instance, struct np_regs *regs);

/* Both forms see the same calls and the same values, with one exception. An unwinder that runs during a call (a
 * backtrace, an exception) must meet real addresses only, so by ADDRESS that call's return is not seen: it is
 * abandoned. */
enum np_retprobe_form {
	NP_RETPROBE_AUTO = 0,   /* exits if all of them can be jumps; else the address if possible; else exits */
	NP_RETPROBE_EXITS = 1,  /* every ret of the function is a probe; the stack is not touched. NP_ERROR_EXITS where
                          * the function may also be left by a jump or in an unknown way */
	NP_RETPROBE_ADDRESS = 2 /* the return address is replaced: a kretprobe. NP_ERROR_RETURN_ADDRESS where something
                          * would notice the replaced address: runtimes that read return addresses, functions that
                          * read their own, CET */
};

struct np_retprobe {
	struct np_probe probe;              /* addr or symbol: a function's entry. Its size is the whole structure's:
	                                     * { { NP_SIZE(struct np_retprobe), .symbol = ... }, .handler = ... }. It has
	                                     * no pre- or post-handler of its own */
	np_retprobe_handler handler;        /* when the function returns, may be NULL */
	np_retprobe_handler entry_handler;  /* when the function is called, may be NULL. If it returns another value than
	                                     * 0, this call is not followed */
	size_t data_size;                   /* bytes of np_retprobe_instance.data, at most NP_RETPROBE_DATA_MAX */
	int maxactive;                      /* calls at the same time, over all threads; 0: NP_RETPROBE_MAXACTIVE; at most
	                                     * NP_RETPROBE_MAXACTIVE_MAX */
	int form;                           /* enum np_retprobe_form */
};
#define NP_RETPROBE_DATA_MAX 4096
#define NP_RETPROBE_MAXACTIVE 1024
#define NP_RETPROBE_MAXACTIVE_MAX 1048576

NP_API int np_register_retprobe(struct np_retprobe *probe);
NP_API int np_register_retprobes(struct np_retprobe *const *probes, size_t count);
/* Active calls still return to their callers, but the handlers do not run. */
NP_API int np_unregister_retprobe(struct np_retprobe *probe);
NP_API int np_unregister_retprobes(struct np_retprobe *const *probes, size_t count);
/* np_probe_hits(&probe->probe) counts calls whose return was seen. nmissed counts calls whose return will not be
 * seen, because maxactive others were active or the call was inside of a handler. Calls that were begun and left
 * by longjmp, an exception or the end of their thread are abandoned. They are counted when the library notices it:
 * when it needs their place, or when the thread ends. So calls = hits + nmissed + abandoned + active + left out.
 * After np_disable_probe(&probe->probe) new calls are not followed; active ones are followed to their end. */
NP_API uint64_t np_retprobe_nmissed(const struct np_retprobe *probe);
NP_API uint64_t np_retprobe_abandoned(const struct np_retprobe *probe);
/* The form that AUTO has chosen; NP_RETPROBE_AUTO: the probe is not registered. */
NP_API enum np_retprobe_form np_retprobe_form(const struct np_retprobe *probe);

/* ---- hooks ---------------------------------------------------------------------------------------------------- */

/* Makes every call of `function` call `replacement` instead; *original (may be NULL) calls the function itself. A
 * function has at most one hook. Probes may stand on the function as well. They fire before the hook, in whatever
 * order they were registered. A return probe sees the return to the function's caller; a call of *original is no
 * call of the function to probes.
 *
 * The library jumps to the replacement, which so has the function's return address and arguments. In three cases
 * the library calls it instead, in a frame of its own:
 *
 * - the stack is not aligned to 16 (gcc's -fipa-stack-alignment);
 * - or all code of the function is known: then callers may keep values in registers that the function does
 *   not change (-fipa-ra);
 * - or the function has a return probe by exits.
 *
 * Then the library aligns the stack. It keeps the registers that a caller may rely on, except the upper parts of
 * vectors and those in which the function may return something. Arguments on the stack are copied: the first
 * NP_HOOK_STACK bytes. The function's return address is __builtin_return_address(1), not (0). Exceptions and
 * backtraces pass through. */
#define NP_HOOK_STACK 512
NP_API int np_hook(void *function, void *replacement, void **original);
/* Removes the hook. *original stays callable for ever. */
NP_API int np_unhook(void *function);

/* ---- watchpoints ---------------------------------------------------------------------------------------------- */

/* The kernel's HW_BREAKPOINT_*. The processor cannot watch for reads alone. */
enum np_watch {
	NP_WATCH_WRITE = 2,
	NP_WATCH_READ_WRITE = 3,
	NP_WATCH_EXECUTE = 4
};

struct np_watchpoint;

/* Runs in the thread that made the access, like other handlers and not in a signal handler. It runs after the
 * access, and regs->rip is the next instruction (in a nanoprobe detour: its original address). For an instruction
 * that is watched for execution, the handler runs before the instruction. Changes of regs take effect when the
 * program continues. */
typedef void (*np_watch_handler)(struct np_watchpoint *watchpoint, struct np_regs *regs);

/* The processor's debug registers watch `length` bytes for all threads of the process, later ones included. There
 * are four; a watchpoint takes one from registration to removal. Accesses that the kernel makes for the program
 * (read(2)) are not seen, nor are accesses in children of vfork. A child of fork has its own watchpoints. */
struct np_watchpoint {
	size_t size;
	void *addr;
	size_t length;            /* 1, 2, 4 or 8, and addr a multiple of it; NP_WATCH_EXECUTE: 1, addr an instruction */
	int type;                 /* enum np_watch */
	unsigned flags;           /* NP_PROBE_DISABLED or 0 */
	np_watch_handler handler; /* NULL: hits are only counted, which costs no signal */
	void *user;               /* the caller's */
	void *reserved[4];        /* the library's */
};

/* NP_ERROR_NO_WATCHPOINT: no debug register is left. NP_ERROR_BUSY: another watchpoint is on some of these bytes.
 * NP_ERROR_UNSUPPORTED: the machine has none, or the kernel is older than 5.13. NP_ERROR_PERMISSION.
 * NP_ERROR_LIMIT: threads came faster than they could be watched. */
NP_API int np_register_watchpoint(struct np_watchpoint *watchpoint);
/* When it returns, no thread is in the watchpoint's handler any more. */
NP_API int np_unregister_watchpoint(struct np_watchpoint *watchpoint);
NP_API int np_disable_watchpoint(struct np_watchpoint *watchpoint);
NP_API int np_enable_watchpoint(struct np_watchpoint *watchpoint);
/* How often the handler ran (without a handler: accesses), and how often it did not run though the processor saw
 * an access. This happens in handlers, with SIGTRAP blocked, and when one instruction meets two watchpoints: only
 * the first gets a signal. hits + nmissed is the number of accesses that the kernel has counted. */
NP_API uint64_t np_watchpoint_hits(const struct np_watchpoint *watchpoint);
NP_API uint64_t np_watchpoint_nmissed(const struct np_watchpoint *watchpoint);

/* ---- introspection -------------------------------------------------------------------------------------------- */

enum np_kind { NP_KIND_PROBE = 'k', NP_KIND_JPROBE = 'j', NP_KIND_RETPROBE = 'r', NP_KIND_HOOK = 'h', NP_KIND_WATCHPOINT = 'w' };

struct np_info {
	size_t size;
	void *addr;
	enum np_kind kind;
	enum np_tactic tactic;
	int enabled;
	uint64_t hits, nmissed;
	const char *module, *symbol; /* "" when unknown */
	size_t offset;
};

/* Calls `visit` for every registered probe, by ascending address and then in the order of registration. Stops when
 * `visit` returns non-zero, and returns that. `nanoprobe -l -p PID` shows the same from outside. */
NP_API int np_list(int (*visit)(const struct np_info *info, void *user), void *user);

/* How many probes there may be at a time. */
#define NP_PROBES_MAX 16384

#ifdef __cplusplus
}
#endif

#endif
