/* Names that the kernel keeps for the program: the paths of its directories and open files, and its threads'
 * names. They come from a system call that does not block: it looks up no file, and only copies names that the
 * kernel already has. At most it needs memory for an entry of /proc.
 *
 * A path goes to scratch memory. If a path might have been cut, the fault is a lack of room. The path of a
 * descriptor that is not open is "<none>", as in DTrace. */
#include "runtimes.h"
#include "scratch.h"
#include "syscalls.h"

enum {
	ERANGE = 34,
	PR_GET_NAME = 16,
	NAME_BYTES = 16,
	WORD_MAX = 32,
	DIGITS_MAX = 10,
	DEVICE_MAJOR = 0xfffff,
	VECTOR_MAX = 1024, /* the kernel refuses more parts */
	VECTOR_STEP = 16,  /* bytes of a struct iovec */
};
/* The longest path that is made up here. */
_Static_assert(sizeof("/sys/dev/block/1048575:4294967295") <= WORD_MAX + DIGITS_MAX, "path");

/* Appends a word and a NUL to the text in `to`; yields the address of that NUL. */
static volatile u8 *append(volatile u8 *to, const char *word)
{
	while ((*to = (u8)*word) != 0) {
		to++;
		word++;
	}
	return to;
}

static volatile u8 *append_number(volatile u8 *to, u32 number)
{
	volatile u8 digits[DIGITS_MAX];
	u32 count = 0;
	do {
		digits[count++] = (u8)('0' + number % 10);
		number /= 10;
	} while (number && count < DIGITS_MAX);
	while (count)
		*to++ = digits[--count];
	*to = 0;
	return to;
}

/* The kernel's path of `descriptor`, at most `room` bytes without a NUL; negative: it has none. */
static i64 ask(i64 descriptor, u64 destination, u64 room)
{
	volatile u8 path[WORD_MAX + DIGITS_MAX];
	if (descriptor == NP_PATH_OF_FOLDER) {
		/* The result includes the NUL. This call works even without /proc. */
		i64 bytes = np_syscall4(NP_SYS_GETCWD, destination, room, 0, 0);
		return bytes > 0 ? bytes - 1 : bytes;
	}
	if (descriptor > 0 && (u64)descriptor & NP_PATH_OF_DEVICE) {
		volatile u8 *minor = append_number(append(path, "/sys/dev/block/"),
						   (u32)((u64)descriptor >> 32) & DEVICE_MAJOR);
		append_number(append(minor, ":"), (u32)descriptor);
		return np_syscall4(NP_SYS_READLINK, (u64)path, destination, room, 0);
	}
	if (descriptor > 0 && (u64)descriptor & NP_PATH_OF_PROGRAM) {
		append(append_number(append(path, "/proc/"), (u32)descriptor), "/exe");
		return np_syscall4(NP_SYS_READLINK, (u64)path, destination, room, 0);
	}
	volatile u8 *end = append(path, "/proc/thread-self/");
	if (descriptor == NP_PATH_OF_ROOT)
		append(end, "root");
	else if (descriptor < 0 || descriptor > 0xffffffff)
		return -1;
	else
		append_number(append(end, "fd/"), (u32)descriptor);
	return np_syscall4(NP_SYS_READLINK, (u64)path, destination, room, 0);
}

NP_ENTRY void np_path(struct np_context *context, u64 descriptor)
{
	static const char none[] = "<none>";
	u64 room, destination = np_scratch_next(context, &room);
	context->result = (u64)np_zeros;
	if (np_unlikely(room < NP_PATH_ROOM)) {
		np_fault(context, NP_FAULT_SCRATCH, NP_PATH_ROOM);
		return;
	}
	if (!np_may_call()) {
		np_fault(context, NP_FAULT_ILLEGAL, 0);
		return;
	}
	i64 length = ask((i64)descriptor, destination, room - 1);
	if (np_unlikely(length == -ERANGE || length >= (i64)(room - 1))) {
		np_fault(context, NP_FAULT_SCRATCH, room);
		return;
	}
	if (length <= 0)
		length = append((volatile u8 *)destination, none) - (volatile u8 *)destination;
	/* Clears the bytes up to the word's end, because keys rely on zeros there. After scratch memory there are 8 more
	 * bytes. */
	u64 end = (u64)length;
	do
		*(volatile u8 *)(destination + end++) = 0;
	while (end & 7);
	np_scratch_take(context, end);
	context->result = destination;
}

NP_ENTRY void np_thread_name(struct np_context *context)
{
	u64 destination = np_scratch_make(context, NAME_BYTES);
	if (!destination)
		return;
	((volatile u64 *)destination)[0] = ((volatile u64 *)destination)[1] = 0;
	context->result = destination;
	if (!np_may_call() || np_syscall4(NP_SYS_PRCTL, PR_GET_NAME, destination, 0, 0) < 0)
		np_fault(context, NP_FAULT_ILLEGAL, 0);
}

/* The kernel's struct statx, as far as it is read. */
enum {
	STATX_BYTES = 256,
	STATX_MODE = 28,
	STATX_DEVICE = 128, /* stx_rdev_major, stx_rdev_minor, stx_dev_major, stx_dev_minor */
	STATX_MOUNT = 144,
	STATX_TYPE = 1,
	STATX_MNT_ID = 0x1000,
	AT_EMPTY_PATH = 0x1000,
	AT_STATX_DONT_SYNC = 0x4000,
	MODE_TYPE = 0xf000,
	MODE_PIPE = 0x1000,
	MODE_SOCKET = 0xc000,
	MODE_BLOCK_DEVICE = 0x6000,
	MODE_REGULAR = 0x8000,
};

NP_ENTRY void np_file_status(struct np_context *context, u64 descriptor, u64 part)
{
	static const char empty[] = "";
	u64 room, status = np_scratch_next(context, &room);
	context->result = 0;
	if (np_unlikely(room < STATX_BYTES)) {
		np_fault(context, NP_FAULT_SCRATCH, STATX_BYTES);
		return;
	}
	if (!np_may_call()) {
		np_fault(context, NP_FAULT_ILLEGAL, 0);
		return;
	}
	/* No server of NFS or FUSE is asked, so the call does not wait for one. */
	i64 failed = np_syscall6(NP_SYS_STATX, (u64)(i64)(i32)descriptor, (u64)empty, AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
	                         STATX_TYPE, status, 0);
	if (failed)
		return;
	u32 type = *(volatile u16 *)(status + STATX_MODE) & MODE_TYPE;
	if (part == 0) {
		context->result = type == MODE_REGULAR || type == MODE_BLOCK_DEVICE;
		return;
	}
	volatile u32 *device = (volatile u32 *)(status + STATX_DEVICE) + (type == MODE_BLOCK_DEVICE ? 0 : 2);
	context->result = (u64)device[0] << 32 | device[1];
}

/* A number in digits, and the byte after it. */
static u64 parse(volatile const u8 **text)
{
	u64 value = 0;
	while (**text >= '0' && **text <= '9')
		value = value * 10 + (u64)(*(*text)++ - '0');
	if (**text)
		(*text)++;
	return value;
}

static int at_end(u8 byte)
{
	return byte == 0 || byte == '\n';
}

/* The name in the line of a mount, or the folder after it. By the mount's number, or, for a kernel that does not tell
 * it, by the device. */
static volatile const u8 *find_mount(u64 mounts, u64 number, u64 device, u64 part)
{
	volatile const u8 *text = (volatile const u8 *)mounts;
	while (*text) {
		u64 mount = parse(&text), major = parse(&text), minor = parse(&text);
		if (number ? mount == number : (major << 32 | minor) == device) {
			while (part && !at_end(*text) && *text++ != ' ')
				;
			return text;
		}
		while (!at_end(*text))
			text++;
		text += *text == '\n';
	}
	return 0;
}

/* Copies to scratch memory, up to the end of a line, or to a space in a name. */
static void yield_part(struct np_context *context, volatile const u8 *text, u64 part)
{
	u64 bytes = 0;
	while (!at_end(text[bytes]) && (part || text[bytes] != ' '))
		bytes++;
	u64 copy = np_scratch_make(context, (bytes + 8) & ~7UL);
	if (!copy)
		return;
	for (u64 at = 0; at < bytes; at++)
		((volatile u8 *)copy)[at] = text[at];
	for (u64 at = bytes; at < ((bytes + 8) & ~7UL); at++)
		((volatile u8 *)copy)[at] = 0;
	context->result = copy;
}

NP_ENTRY void np_file_system(struct np_context *context, u64 descriptor, u64 part, u64 mounts)
{
	static const char empty[] = "", none[] = "<none>", unknown[] = "<unknown>";
	static const char sockets[] = "sockfs", pipes[] = "pipefs", others[] = "anon_inodefs";
	u64 room, status = np_scratch_next(context, &room);
	context->result = (u64)np_zeros;
	if (np_unlikely(room < STATX_BYTES)) {
		np_fault(context, NP_FAULT_SCRATCH, STATX_BYTES);
		return;
	}
	if (!np_may_call()) {
		np_fault(context, NP_FAULT_ILLEGAL, 0);
		return;
	}
	i64 failed = np_syscall6(NP_SYS_STATX, (u64)(i64)(i32)descriptor, (u64)empty, AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
	                         STATX_TYPE | STATX_MNT_ID, status, 0);
	if (failed) {
		yield_part(context, (volatile const u8 *)none, part);
		return;
	}
	u32 type = *(volatile u16 *)(status + STATX_MODE) & MODE_TYPE;
	u64 has_number = *(volatile u32 *)status & STATX_MNT_ID;
	volatile u32 *device = (volatile u32 *)(status + STATX_DEVICE) + 2;
	volatile const u8 *found = find_mount(mounts, has_number ? *(volatile u64 *)(status + STATX_MOUNT) : 0,
	                                      (u64)device[0] << 32 | device[1], part);
	/* The kernel's own file systems are mounted nowhere. */
	if (!found) {
		const char *name = type == MODE_SOCKET ? sockets : type == MODE_PIPE ? pipes : type ? unknown : others;
		found = (volatile const u8 *)(part ? unknown : name);
	}
	yield_part(context, found, part);
}

NP_ENTRY void np_vector_bytes(struct np_context *context, u64 address, u64 count)
{
	u64 all = 0, bytes;
	for (u64 part = 0; part < np_minimum(count, VECTOR_MAX); part++) {
		if (!np_heap_word(context, address + part * VECTOR_STEP + 8, &bytes))
			break;
		all += bytes;
	}
	context->result = all;
}
