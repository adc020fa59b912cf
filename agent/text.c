/* The subroutines that take strings apart and put them together, with DTrace's results (illumos, dtrace_dif_subr).
 *
 * Every string they take is ours (arena, scratch, constants of the handlers), so it is read without a guard; every
 * string they yield is a copy in scratch memory as long as it needs to be. Where DTrace yields a null pointer, for what is
 * not found, they yield the empty string, which is what a null pointer is worth wherever D reads it as a string.
 *
 * Bounds: strsize for a pass over a string; strsize squared for the three searches, which try every place.
 */
#include "scratch.h"
#include "strings.h"

/* Bytes in front of the NUL, at most strsize - 1: what a string variable can hold. */
static u64 length_of(const struct np_context *context, u64 string)
{
	u64 limit = np_control_block(context)->strsize, done = 0;
	while (done + 1 < limit && *(const volatile u8 *)(string + done))
		done++;
	return done;
}

NP_INLINE u8 byte_at(u64 string, u64 index)
{
	return *(const volatile u8 *)(string + index);
}

NP_INLINE void put(u64 string, u64 index, u8 byte)
{
	*(volatile u8 *)(string + index) = byte;
}

/* The result: a copy of `bytes` bytes, none of them NUL, with a NUL behind them. */
static void yield_copy(struct np_context *context, u64 source, u64 bytes)
{
	u64 copy = np_scratch_make(context, bytes + 1);
	if (!copy)
		return;
	for (u64 done = 0; done < bytes; done++)
		put(copy, done, byte_at(source, done));
	put(copy, bytes, 0);
	context->result = copy;
}

/* What is longer than strsize is out of scratch space, as in DTrace, not cut. */
NP_ENTRY void np_strjoin(struct np_context *context, u64 left, u64 right)
{
	u64 first = length_of(context, left), second = length_of(context, right);
	if (first + second + 1 > np_control_block(context)->strsize) {
		context->result = (u64)np_zeros;
		np_fault(context, NP_FAULT_SCRATCH, first + second + 1);
		return;
	}
	u64 joined = np_scratch_make(context, first + second + 1);
	if (!joined)
		return;
	for (u64 done = 0; done < first; done++)
		put(joined, done, byte_at(left, done));
	for (u64 done = 0; done <= second; done++)
		put(joined, first + done, done < second ? byte_at(right, done) : 0);
	context->result = joined;
}

/* From the first, or the last, `wanted` on. The NUL is found as well: it is the empty string. */
NP_ENTRY void np_strchr(struct np_context *context, u64 string, u64 wanted, u64 last)
{
	u64 length = length_of(context, string), found = length;
	for (u64 at = 0; at < length; at++) {
		if (byte_at(string, at) == (u8)wanted) {
			found = at;
			if (!last)
				break;
		}
	}
	yield_copy(context, string + found, length - found);
}

NP_INLINE int matches(u64 string, u64 wanted, u64 bytes)
{
	for (u64 at = 0; at < bytes; at++)
		if (byte_at(string, at) != byte_at(wanted, at))
			return 0;
	return 1;
}

NP_ENTRY void np_strstr(struct np_context *context, u64 string, u64 wanted)
{
	u64 length = length_of(context, string), bytes = length_of(context, wanted);
	u64 at = 0;
	while (at < length && !matches(string + at, wanted, bytes))
		at++;
	yield_copy(context, string + at, length - at);
}

/* As Perl's, which DTrace follows: a position in front of the string is its start, for index; one behind it is its end, for
 * rindex; and the empty string is found wherever one looks, and where one cannot. */
NP_ENTRY void np_index(struct np_context *context, u64 string, u64 wanted, u64 position)
{
	u64 length = length_of(context, string), bytes = length_of(context, wanted);
	i64 at = (i64)position;
	context->result = (u64)-1L;
	if (!length && !bytes) {
		context->result = 0;
		return;
	}
	if (at < 0)
		at = 0;
	if ((u64)at >= length) {
		if (!bytes)
			context->result = length;
		return;
	}
	for (; (u64)at < length; at++) {
		if (matches(string + (u64)at, wanted, bytes)) {
			context->result = (u64)at;
			return;
		}
	}
}

NP_ENTRY void np_rindex(struct np_context *context, u64 string, u64 wanted, u64 position)
{
	u64 length = length_of(context, string), bytes = length_of(context, wanted);
	i64 at = (i64)position;
	context->result = (u64)-1L;
	if (at < 0 || (!length && !bytes)) {
		if (!bytes)
			context->result = 0;
		return;
	}
	if ((u64)at > length)
		at = (i64)length;
	for (; at >= 0; at--) {
		if (matches(string + (u64)at, wanted, bytes)) {
			context->result = (u64)at;
			return;
		}
	}
}

/* `state` is a string variable: the token is taken off its front, what follows it stays there. */
NP_ENTRY void np_strtok(struct np_context *context, u64 state, u64 separators)
{
	u64 length = length_of(context, state), start = 0, end, separator_count = length_of(context, separators);
	u64 map[4] = { 0, 0, 0, 0 };
	for (u64 at = 0; at < separator_count; at++) {
		u8 byte = byte_at(separators, at);
		map[byte / 64] |= 1UL << byte % 64;
	}
#define IS_SEPARATOR(byte) (map[(byte) / 64] >> (byte) % 64 & 1)
	while (start < length && IS_SEPARATOR(byte_at(state, start)))
		start++;
	for (end = start; end < length && !IS_SEPARATOR(byte_at(state, end));)
		end++;
#undef IS_SEPARATOR
	yield_copy(context, state + start, end - start);
	if (context->fault)
		return;
	/* The separator itself stays in front of the rest, where the next call skips it. */
	for (u64 at = end; at <= length; at++)
		put(state, at - end, at < length ? byte_at(state, at) : 0);
}

#define NP_SUBSTR_ALL (1UL << 63) /* no count was given: lang::interpret::text::ALL */

NP_ENTRY void np_substr(struct np_context *context, u64 string, u64 index, u64 count)
{
	i64 length = (i64)length_of(context, string), start = (i64)index, remaining = (i64)count;
	i64 strsize = (i64)np_control_block(context)->strsize;
	if (count == NP_SUBSTR_ALL)
		remaining = strsize;
	if (start < 0) {
		start += length;
		if (start < 0 && remaining > 0 && start + remaining > 0) {
			remaining += start;
			start = 0;
		}
	}
	if (start >= length || start < 0)
		remaining = 0;
	else if (remaining < 0)
		remaining += length - start;
	else if (remaining > strsize - start)
		remaining = strsize - start;
	if (remaining <= 0)
		start = remaining = 0;
	else if (remaining > length - start)
		remaining = length - start;
	yield_copy(context, string + (u64)start, (u64)remaining);
}

/* Letters of ASCII only. */
NP_ENTRY void np_strcase(struct np_context *context, u64 string, u64 upper)
{
	u64 length = length_of(context, string);
	u8 first = upper ? 'a' : 'A';
	yield_copy(context, string, length);
	if (context->fault)
		return;
	u64 copy = context->result;
	for (u64 at = 0; at < length; at++) {
		u8 byte = byte_at(copy, at);
		if (byte >= first && byte < first + 26)
			put(copy, at, byte ^ 0x20);
	}
}

/* The last component, or what is in front of it, as basename(1) and dirname(1). */
static void path_part(struct np_context *context, u64 string, int base)
{
	i64 length = (i64)length_of(context, string), at = length - 1, last_base, first_base, last_directory;
	u64 dot = (u64)'.';
	if (!length) {
		yield_copy(context, (u64)&dot, 1);
		return;
	}
	while (at >= 0 && byte_at(string, (u64)at) == '/')
		at--;
	last_base = at;
	while (at >= 0 && byte_at(string, (u64)at) != '/')
		at--;
	first_base = at + 1;
	while (at >= 0 && byte_at(string, (u64)at) == '/')
		at--;
	last_directory = at;
	if (last_base < 0) /* slashes only */
		yield_copy(context, string, 1);
	else if (base)
		yield_copy(context, string + (u64)first_base, (u64)(last_base - first_base + 1));
	else if (first_base == 0) /* no slash */
		yield_copy(context, (u64)&dot, 1);
	else
		yield_copy(context, string, last_directory < 0 ? 1 : (u64)last_directory + 1);
}

NP_ENTRY void np_basename(struct np_context *context, u64 string)
{
	path_part(context, string, 1);
}

NP_ENTRY void np_dirname(struct np_context *context, u64 string)
{
	path_part(context, string, 0);
}

/* Without empty components, `.` and `..`; of the text only: no link is followed. */
NP_ENTRY void np_cleanpath(struct np_context *context, u64 string)
{
	u64 length = length_of(context, string), strsize = np_control_block(context)->strsize, in = 0, out = 0;
	/* DTrace stops five bytes before strsize, and a `..` at the end may write one byte more than it takes away. */
	u64 path = np_scratch_make(context, length + 6);
	u8 byte;
	if (!path)
		return;
#define NEXT() (in < length ? byte_at(string, in++) : (in++, 0))
	do {
		byte = NEXT();
again:
		if (out + 5 >= strsize)
			break;
		if (byte != '/') {
			put(path, out++, byte);
			continue;
		}
		byte = NEXT();
		if (byte == '/')
			goto again;
		if (byte != '.') {
			put(path, out++, '/');
			put(path, out++, byte);
			continue;
		}
		byte = NEXT();
		if (byte == '/')
			goto again;
		if (byte != '.') {
			put(path, out++, '/');
			put(path, out++, '.');
			put(path, out++, byte);
			continue;
		}
		byte = NEXT();
		if (byte != '/' && byte) {
			put(path, out++, '/');
			put(path, out++, '.');
			put(path, out++, '.');
			put(path, out++, byte);
			continue;
		}
		in--;
		/* At the end, what it goes back to stays, be it a slash or not; of nothing, a slash is left. */
		if (!out)
			put(path, 0, '/');
		while (out && byte_at(path, --out) != '/')
			;
		if (!byte)
			out++;
	} while (byte);
#undef NEXT
	put(path, out, 0);
	context->result = path;
}
