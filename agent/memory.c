/* Reads the target's memory (copyin, copyinstr, load), and writes it (copyout, copyoutstr).
 *
 * There are three ways; the first that applies is used:
 *
 *   1. The address lies in the snapshot of readable ranges that the tracer publishes: read directly, by guarded loads
 *      (about 1 ns a word). The range found last is remembered in the context; otherwise a binary search.
 *   2. process_vm_readv of ourselves (about 370 ns): the kernel reports a bad address by an errno, without a
 *      signal.
 *   3. Where system calls, or this one, are not allowed: guarded loads of an unknown address. This needs a thread
 *      that does not block SIGSEGV; see guard.h.
 */
#include "ranges.h"
#include "scratch.h"
#include "strings.h"
#include "syscalls.h"
#include "threads.h"
#include "text.h"

struct np_vector {
	u64 base;
	u64 bytes;
};

NP_COLD u64 np_find_range(struct np_context *context, u64 publication, u64 address)
{
	struct np_control *control = np_control_block(context);
	u64 offset = publication >> 24, low = 0, high = publication & 0xffffff;
	if (offset > control->arena_bytes || high * sizeof(struct np_range) > control->arena_bytes - offset)
		return 0;
	struct np_range *ranges = (struct np_range *)((u64)control + offset);
	while (low < high) {
		u64 middle = low + (high - low) / 2;
		u64 start = ranges[middle].start, end = ranges[middle].end;
		if (address < start) {
			high = middle;
		} else if (address >= end) {
			low = middle + 1;
		} else {
			context->range_publication = publication;
			context->range_start = start;
			context->range_end = end;
			return end;
		}
	}
	return 0;
}

/* By guarded loads, whatever is known about the address. */
static int fetch_directly(u64 destination, u64 address, u64 bytes)
{
	u64 done = 0, value;
	for (; done + 8 <= bytes; done += 8) {
		if (!np_guarded_u64(address + done, &value))
			return 0;
		*(volatile u64 *)(destination + done) = value;
	}
	for (; done < bytes; done++) {
		if (!np_guarded_u8(address + done, &value))
			return 0;
		*(volatile u8 *)(destination + done) = (u8)value;
	}
	return 1;
}

/* Yields whether everything was read, or a negative errno when the system call itself is not available. */
static i64 fetch_by_kernel(u64 destination, u64 address, u64 bytes)
{
	struct np_vector local = { destination, bytes }, remote = { address, bytes };
	u32 pid = np_pid_of((const struct np_thread_table *)np_header.table);
	i64 result = np_syscall6(NP_SYS_PROCESS_VM_READV, pid, (u64)&local, 1, (u64)&remote, 1, 0);
	if (result == -NP_ENOSYS || result == -NP_EPERM)
		return result;
	return result == (i64)bytes;
}

NP_COLD int np_fetch(struct np_context *context, u64 destination, u64 address, u64 bytes)
{
	if (address < NP_LOWEST_ADDRESS || address > NP_HIGHEST_ADDRESS || bytes > NP_HIGHEST_ADDRESS - address)
		return 0;
	/* Scratch memory and variables lie in the arena, which is always mapped. */
	struct np_control *control = np_control_block(context);
	if (address - (u64)control < control->arena_bytes && bytes <= control->arena_bytes - (address - (u64)control))
		return fetch_directly(destination, address, bytes);
	u64 end = np_readable_end(context, address);
	if (end && bytes <= end - address)
		return fetch_directly(destination, address, bytes);
	if (np_may_call()) {
		i64 result = fetch_by_kernel(destination, address, bytes);
		if (result >= 0)
			return result != 0;
	}
	return fetch_directly(destination, address, bytes);
}

int np_fetch_word(struct np_context *context, u64 address, u64 *word)
{
	if (address < NP_LOWEST_ADDRESS || address > NP_HIGHEST_ADDRESS - 8)
		return 0;
	struct np_control *control = np_control_block(context);
	u64 in_arena = address - (u64)control;
	if (np_may_call() && (in_arena >= control->arena_bytes || control->arena_bytes - in_arena < 8)) {
		i64 result = fetch_by_kernel((u64)word, address, 8);
		if (result >= 0)
			return result != 0;
	}
	return np_guarded_u64(address, word);
}

int np_stack_word(struct np_context *context, u64 address, u64 *word)
{
	if (address < NP_LOWEST_ADDRESS || address > NP_HIGHEST_ADDRESS || address % 8)
		return 0;
	if (address - context->stack_start < context->stack_end - context->stack_start)
		return np_guarded_u64(address, word);
	u64 end = np_readable_end(context, address);
	if (end && end - address >= 8)
		return np_guarded_u64(address, word);
	u64 value = 0;
	if (!np_fetch(context, (u64)&value, address, 8))
		return 0;
	/* The stack above a thread's stack pointer stays mapped while the thread runs, so the context remembers the page
	   as readable. */
	u64 page = address & ~4095UL;
	if (page == context->stack_end) {
		context->stack_end = page + 4096;
	} else {
		context->stack_start = page;
		context->stack_end = page + 4096;
	}
	*word = value;
	return 1;
}

NP_ENTRY void np_load(struct np_context *context, u64 address, u64 bytes)
{
	u64 value = 0, end = np_readable_end(context, address);
	int good = 0;
	if (np_likely(end && bytes <= end - address)) {
		if (bytes == 8)
			good = np_guarded_u64(address, &value);
		else if (bytes == 4)
			good = np_guarded_u32(address, &value);
		else if (bytes == 2)
			good = np_guarded_u16(address, &value);
		else if (bytes == 1)
			good = np_guarded_u8(address, &value);
	} else if (bytes <= 8) {
		u64 buffer = 0;
		good = np_fetch(context, (u64)&buffer, address, bytes);
		value = buffer;
	}
	if (np_unlikely(bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)) {
		np_fault(context, NP_FAULT_BAD_SIZE, bytes);
		value = 0;
	} else if (np_unlikely(!good)) {
		np_fault(context, NP_FAULT_BAD_ADDRESS, address);
		value = 0;
	}
	context->result = value;
}

NP_ENTRY void np_copyin(struct np_context *context, u64 address, u64 bytes)
{
	u64 room, destination = np_scratch_next(context, &room);
	context->result = (u64)np_zeros;
	if (np_unlikely(bytes > room)) {
		np_fault(context, NP_FAULT_SCRATCH, bytes);
	} else if (np_unlikely(!np_fetch(context, destination, address, bytes))) {
		np_fault(context, NP_FAULT_BAD_ADDRESS, address);
	} else {
		np_scratch_take(context, bytes);
		context->result = destination;
	}
}

/* The string from `done` on, page by page. Yields its length with the NUL, at most `limit`; 0: a
 * bad address. */
static NP_COLD u64 copy_string_by_pages(struct np_context *context, u64 destination, u64 address, u64 done, u64 limit)
{
	while (done < limit) {
		u64 chunk = np_minimum(limit - done, 4096 - ((address + done) & 4095));
		if (!np_fetch(context, destination + done, address + done, chunk))
			return 0;
		for (u64 end = done + chunk; done < end; done++) {
			volatile u8 *byte = (volatile u8 *)(destination + done);
			if (!*byte) {
				/* Clears the bytes up to the word's end, as the fast path does. */
				*(volatile u64 *)(destination + (done & ~7UL)) &= (1UL << (done % 8 * 8)) - 1;
				return done + 1;
			}
		}
	}
	return limit;
}

NP_ENTRY void np_copyinstr(struct np_context *context, u64 address, u64 limit)
{
	u64 strsize = np_control_block(context)->strsize;
	u64 room, destination = np_scratch_next(context, &room), done = 0, word, length = 0;
	if (limit == 0 || limit > strsize)
		limit = strsize;
	u64 capacity = np_minimum(limit, room);
	u64 end = np_readable_end(context, address);
	/* This copies words that lie wholly in the range and begin below the capacity. After scratch memory there are 8
	 * more bytes. */
	while (np_likely(done < capacity && end - address >= done + 8 && end)) {
		if (np_unlikely(!np_guarded_u64(address + done, &word)))
			break; /* unmapped since the snapshot, or an unaligned access trapped: read page by page */
		u64 zero = np_zero_bytes(word);
		if (zero) {
			u32 bits = (u32)__builtin_ctzl(zero) & ~7u;
			*(volatile u64 *)(destination + done) = word & ((1UL << bits) - 1);
			length = done + bits / 8 + 1;
			break;
		}
		*(volatile u64 *)(destination + done) = word;
		done += 8;
	}
	if (np_unlikely(length == 0 && done < capacity))
		length = copy_string_by_pages(context, destination, address, done, capacity);
	else if (length == 0 || length > capacity)
		length = capacity;
	if (np_unlikely(length == 0)) {
		context->result = (u64)np_zeros;
		np_fault(context, capacity ? NP_FAULT_BAD_ADDRESS : NP_FAULT_SCRATCH, address);
		return;
	}
	if (np_unlikely(length == capacity)) {
		if (capacity < limit && *(volatile u8 *)(destination + length - 1)) {
			context->result = (u64)np_zeros;
			np_fault(context, NP_FAULT_SCRATCH, limit);
			return;
		}
		*(volatile u8 *)(destination + length - 1) = 0;
	}
	np_scratch_take(context, length);
	context->result = destination;
}

NP_ENTRY void np_alloca(struct np_context *context, u64 bytes)
{
	u64 destination = np_scratch_make(context, bytes);
	if (!destination)
		return;
	for (u64 done = 0; done < bytes; done += 8)
		*(volatile u64 *)(destination + done) = 0;
	context->result = destination;
}

NP_ENTRY void np_copyinto(struct np_context *context, u64 address, u64 bytes, u64 destination)
{
	context->result = destination;
	if (np_unlikely(!np_in_scratch(context, destination, bytes)))
		np_fault(context, NP_FAULT_BAD_ADDRESS, destination);
	else if (np_unlikely(!np_fetch(context, destination, address, bytes)))
		np_fault(context, NP_FAULT_BAD_ADDRESS, address);
}

NP_ENTRY void np_store_scratch(struct np_context *context, u64 address, u64 bytes, u64 value)
{
	if (np_unlikely(bytes > 8 || !np_scratch_store(context, address, bytes))) {
		np_fault(context, NP_FAULT_BAD_ADDRESS, address);
		return;
	}
	for (u64 done = 0; done < bytes; done++, value >>= 8)
		*(volatile u8 *)(address + done) = (u8)value;
}

NP_ENTRY void np_fetch_into(struct np_context *context, u64 destination, u64 address, u64 bytes)
{
	if (np_unlikely(!np_fetch(context, destination, address, bytes)))
		np_fault(context, NP_FAULT_BAD_ADDRESS, address);
}

/* Writes to the program's memory. The kernel refuses to write memory that the program itself could not write. The
 * agent's own memory is never written. */
static void copy_out(struct np_context *context, u64 source, u64 address, u64 bytes)
{
	struct np_control *control = np_control_block(context);
	u64 offset = address - (u64)control, done = 0;
	if (address < NP_LOWEST_ADDRESS || address > NP_HIGHEST_ADDRESS || bytes > NP_HIGHEST_ADDRESS - address ||
	    offset < control->arena_bytes || (u64)control - address < bytes) {
		np_fault(context, NP_FAULT_BAD_ADDRESS, address);
		return;
	}
	if (np_may_call()) {
		struct np_vector local = { source, bytes }, remote = { address, bytes };
		i64 result = np_syscall6(NP_SYS_PROCESS_VM_WRITEV,
		                         np_pid_of((const struct np_thread_table *)np_header.table), (u64)&local, 1,
		                         (u64)&remote, 1, 0);
		if (result != -NP_ENOSYS && result != -NP_EPERM) {
			if (result != (i64)bytes)
				np_fault(context, NP_FAULT_BAD_ADDRESS, result < 0 ? address : address + (u64)result);
			return;
		}
	}
	for (; done < bytes; done++) {
		if (!np_guarded_store_u8(address + done, *(const volatile u8 *)(source + done))) {
			np_fault(context, NP_FAULT_BAD_ADDRESS, address + done);
			return;
		}
	}
}

NP_ENTRY void np_copyout(struct np_context *context, u64 buffer, u64 address, u64 bytes)
{
	context->result = 0;
	if (np_unlikely(!np_in_scratch(context, buffer, bytes)))
		np_fault(context, NP_FAULT_BAD_ADDRESS, buffer);
	else if (bytes)
		copy_out(context, buffer, address, bytes);
}

NP_ENTRY void np_copyoutstr(struct np_context *context, u64 string, u64 address, u64 bytes)
{
	u64 length = np_text_length(context, string) + 1;
	context->result = 0;
	if (np_minimum(length, bytes))
		copy_out(context, string, address, np_minimum(length, bytes));
}
