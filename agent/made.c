/* System calls of code that the program has made at run time, in memory that no file describes (`-x syscalls=all`).
 *
 *     mov $39, %eax      b8 27 00 00 00
 *     syscall            0f 05     ->   cc 05
 *
 * The maker of such code may copy it, move it, overwrite it and free it at any time. So only this one byte is ever
 * changed, and what stands there is believed, not the tables:
 *
 *     cc 05, known place       continues in the detour, which makes the call
 *     cc 05, unknown place     a copy, if the bytes around it leave no doubt: the number's load before it, or the usual
 *                              test of the result after it. It gets its first byte back, and the thread makes the call
 *                              there, as if it had never been patched
 *     no longer cc             the tracer, the maker or another thread has changed it since: the thread goes back there
 *     cc, and no 05            the program's own breakpoint
 *
 * All of this works in a forked child, and when the tracer is dead. A copy is mended by an exchange of the byte, or,
 * where the page is not writable, through /proc/self/mem: no page becomes writable and executable for it. No thread
 * executes a `cc` in between that would not come here, too.
 *
 * mprotect that makes memory executable is made by the agent, for the program. Where the memory may hold a call, the
 * thread then waits until the tracer has looked, as after dlopen. Memory without any costs one look at its bytes. */
#include "made.h"
#include "guard.h"
#include "syscalls.h"
#include "threads.h"

enum { NP_PROT_READ = 1, NP_PROT_EXEC = 4, NP_AT_FDCWD = -100 };
enum { NP_O_RDWR = 2, NP_O_CLOEXEC = 02000000 };
/* Little endian: int3 and the second byte of `syscall`; `syscall`. */
enum { NP_CALL_TRAP = 0x05cc, NP_CALL = 0x050f };
#define NP_TRAP_BYTE 0xcc
#define NP_CALL_BYTE 0x0f
/* Memory of more bytes is not looked at here: the tracer is asked in any case. */
#define NP_LOOK_BYTES (1u << 20)
#define NP_PAGE 4096u
/* cmp $imm32, %rax; and the two constants with which C libraries compare. */
enum { NP_COMPARE = 0x3d48 };
#define NP_ERRORS 0xfffff000u

static u64 word16(u64 address)
{
	u64 value;
	return np_guarded_u16(address, &value) ? value : 0;
}

/* Whether memory beside the call may be read. In a child that is not followed, a fault may be the program's: there only
 * the page is read in which the thread has just executed an instruction. */
static int may_read(u64 at, u64 address, u64 bytes)
{
	const struct np_thread_table *table = (const struct np_thread_table *)np_header.table;
	return np_load_once(table->magic) == NP_MAGIC ||
	       (address / NP_PAGE == at / NP_PAGE && (address + bytes - 1) / NP_PAGE == at / NP_PAGE);
}

/* Whether the bytes around leave no doubt that a `syscall` is, or was, at the address (crates/session, made_calls). */
static int is_certain(u64 at)
{
	u64 byte, number, test;
	if (may_read(at, at + 2, 6) && word16(at + 2) == NP_COMPARE && np_guarded_u32(at + 4, &test) &&
	    (test == NP_ERRORS || test == NP_ERRORS + 1))
		return 1;
	if (!may_read(at, at - 7, 7) || !np_guarded_u32(at - 4, &number))
		return 0;
	if (number >> 8 == 0xca8949) /* mov %rcx, %r10 */
		return 1;
	if (number >= NP_CALL_NUMBERS)
		return 0;
	if (!np_guarded_u8(at - 5, &byte))
		return 0;
	return byte == 0xb8 || (byte == 0xc0 && word16(at - 7) == 0xc748); /* mov $number, %eax; mov $number, %rax */
}

int np_continue_call(u64 at, u64 to, struct np_ucontext *ucontext)
{
	u64 there;
	if (!may_read(at, at, 2) || !np_guarded_u16(at, &there))
		return 0;
	if (there == NP_CALL_TRAP)
		ucontext->rip = to;
	else if ((u8)there != NP_TRAP_BYTE)
		ucontext->rip = at;
	else
		return 0;
	return 1;
}

static int write_by_file(u64 at)
{
	static const char path[] = "/proc/self/mem";
	static const u8 byte = NP_CALL_BYTE;
	i64 file = np_syscall4(NP_SYS_OPENAT, (u64)NP_AT_FDCWD, (u64)path, NP_O_RDWR | NP_O_CLOEXEC, 0);
	if (file < 0)
		return 0;
	i64 written = np_syscall4(NP_SYS_PWRITE64, (u64)file, (u64)&byte, 1, at);
	np_syscall4(NP_SYS_CLOSE, (u64)file, 0, 0, 0);
	return written == 1;
}

int np_mend_copy(u64 at, struct np_ucontext *ucontext)
{
	u64 there = np_load_once(*(u64 *)&np_header.made_calls) && may_read(at, at, 2) ? word16(at) : 0;
	if ((there != NP_CALL_TRAP && there != NP_CALL) || !is_certain(at))
		return 0;
	if (there == NP_CALL_TRAP) {
		int may_call = np_may_call();
		if (!np_guarded_exchange_u8(at, NP_TRAP_BYTE, NP_CALL_BYTE) &&
		    !(may_call && write_by_file(at)))
			return 0;
		const struct np_thread_table *table = (const struct np_thread_table *)np_header.table;
		struct np_control *control = (struct np_control *)np_header.control;
		if (np_load_once(table->magic) == NP_MAGIC)
			__atomic_fetch_add(&control->copies_mended, 1, __ATOMIC_RELAXED);
	}
	ucontext->rip = at;
	return 1;
}

/* Whether the memory may hold a system call, patched or not. */
static int may_hold_call(u64 start, u64 bytes, u64 protection)
{
	u64 word, last = 0;
	if (!(protection & NP_PROT_READ) || bytes > NP_LOOK_BYTES)
		return 1;
	for (u64 at = start; at < start + bytes; at += sizeof(u64)) {
		if (!np_guarded_u64(at, &word))
			return 1;
		/* A byte 05 is rare enough. In `word ^ 05..05` it is a zero byte. */
		u64 mixed = word ^ 0x0505050505050505UL;
		if ((mixed - 0x0101010101010101UL) & ~mixed & 0x8080808080808080UL) {
			for (u32 index = 0; index < sizeof(u64); index++) {
				u8 before = (u8)(index ? word >> (8 * index - 8) : last);
				if ((u8)(word >> 8 * index) == 0x05 && (before == NP_CALL_BYTE || before == NP_TRAP_BYTE))
					return 1;
			}
		}
		last = word >> 56;
	}
	return 0;
}

u64 np_shim_protect(struct np_registers *registers)
{
	struct np_thread_table *table = np_load_once(*(u64 *)&np_header.made_calls) ? np_table_of_process() : 0;
	u64 start = registers->rdi, bytes = registers->rsi, protection = registers->rdx;
	if (!(protection & NP_PROT_EXEC) || !table || table->began || !np_may_call() || !np_is_traced(table))
		return 0;
	i64 result = np_syscall4((u32)registers->rax, start, bytes, protection, registers->r10);
	if (result == 0 && may_hold_call(start, bytes, protection))
		np_wait_for_tracer();
	registers->rax = (u64)result;
	return 1;
}
