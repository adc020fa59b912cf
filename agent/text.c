/* The subroutines that take strings apart and build them, with DTrace's results (illumos, dtrace_dif_subr).
 *
 * Every string argument lies in the agent's own memory (arena, scratch, constants of the handlers), so it is read
 * without a guard. Every string result is a copy in scratch memory, which takes no more than its length. When
 * nothing is found the result is 0, the string NULL, which the handlers understand.
 *
 * Bounds: strsize for a pass over a string; the searches, too, take time linear in strsize.
 */
#include "text.h"

/* As in DTrace, a result longer than strsize is a lack of scratch space, and is not cut. */
NP_ENTRY void np_strjoin(struct np_context *context, u64 left, u64 right)
{
	u64 first = np_text_length(context, left), second = np_text_length(context, right);
	if (first + second + 1 > np_control_block(context)->strsize) {
		context->result = (u64)np_zeros;
		np_fault(context, NP_FAULT_SCRATCH, first + second + 1);
		return;
	}
	u64 joined = np_scratch_make(context, first + second + 1);
	if (!joined)
		return;
	for (u64 done = 0; done < first; done++)
		np_text_put(joined, done, np_text_byte(left, done));
	for (u64 done = 0; done <= second; done++)
		np_text_put(joined, first + done, done < second ? np_text_byte(right, done) : 0);
	context->result = joined;
}

#define NOWHERE (~0UL)

/* The result: the text from a place on, or NULL. */
static void yield_from(struct np_context *context, u64 string, u64 length, u64 found)
{
	context->result = 0;
	if (found != NOWHERE)
		np_yield_copy(context, string + found, length - found);
}

/* The text from the first, or the last, `wanted` on. The NUL can be found, too: the result is then
 * the empty string. */
NP_ENTRY void np_strchr(struct np_context *context, u64 string, u64 wanted, u64 last)
{
	u64 length = np_text_length(context, string), found = (u8)wanted ? NOWHERE : length;
	for (u64 at = 0; at < length; at++) {
		if (np_text_byte(string, at) == (u8)wanted) {
			found = at;
			if (!last)
				break;
		}
	}
	yield_from(context, string, length, found);
}

/* A string that is read from its start, or (step -1) from its end. */
struct direction {
	u64 text, wanted; /* the first bytes of both strings in this direction */
	u64 length, bytes;
	i64 step;
};

NP_INLINE u8 text_at(const struct direction *in, u64 index)
{
	return np_text_byte(in->text, (u64)((i64)index * in->step));
}

NP_INLINE u8 wanted_at(const struct direction *in, u64 index)
{
	return np_text_byte(in->wanted, (u64)((i64)index * in->step));
}

/* The start of the greatest suffix of the wanted text, in the order of bytes or in the reversed order, and the
 * suffix's period. */
static u64 greatest_suffix(const struct direction *in, int reversed, u64 *period)
{
	u64 suffix = ~0UL, candidate = 0, offset = 1, length = 1; /* ~0 stands for the position before the first byte */
	while (candidate + offset < in->bytes) {
		u8 ours = wanted_at(in, suffix + offset), other = wanted_at(in, candidate + offset);
		if (ours == other) {
			if (offset == length) {
				candidate += length;
				offset = 1;
			} else {
				offset++;
			}
		} else if (reversed ? ours < other : ours > other) {
			candidate += offset;
			offset = 1;
			length = candidate - suffix;
		} else {
			suffix = candidate++;
			offset = length = 1;
		}
	}
	*period = length;
	return suffix + 1;
}

/* Finds the first occurrence of the wanted text. Crochemore and Perrin's two-way search: time linear in both
 * lengths, no memory. The wanted text is cut in two. Its right part is compared first, to the right; then its left
 * part, to the left. */
static u64 search(const struct direction *in)
{
	u64 period, other_period, at = 0, known = 0, keeps = 0;
	if (!in->bytes)
		return 0;
	u64 cut = greatest_suffix(in, 0, &period), other = greatest_suffix(in, 1, &other_period);
	if (other > cut) {
		cut = other;
		period = other_period;
	}
	u64 same = 0;
	while (same < cut && period + same < in->bytes && wanted_at(in, same) == wanted_at(in, period + same))
		same++;
	if (same == cut)
		/* the wanted text is periodic: after a shift by its period, this many bytes are known to match */
		keeps = in->bytes - period;
	else
		period = (cut > in->bytes - cut ? cut : in->bytes - cut) + 1;
	while (in->bytes <= in->length && at <= in->length - in->bytes) {
		u64 index = cut > known ? cut : known;
		while (index < in->bytes && wanted_at(in, index) == text_at(in, at + index))
			index++;
		if (index < in->bytes) {
			at += index - cut + 1;
			known = 0;
			continue;
		}
		for (index = cut; index > known && wanted_at(in, index - 1) == text_at(in, at + index - 1);)
			index--;
		if (index <= known)
			return at;
		at += period;
		known = keeps;
	}
	return NOWHERE;
}

/* The first occurrence of the wanted text from `start` on. */
static u64 first_place(u64 string, u64 length, u64 wanted, u64 bytes, u64 start)
{
	struct direction in = { string + start, wanted, length - start, bytes, 1 };
	u64 found = search(&in);
	return found == NOWHERE ? NOWHERE : start + found;
}

NP_ENTRY void np_strstr(struct np_context *context, u64 string, u64 wanted)
{
	u64 length = np_text_length(context, string), bytes = np_text_length(context, wanted);
	yield_from(context, string, length, first_place(string, length, wanted, bytes, 0));
}

/* As in Perl, which DTrace follows. For index, a position before the string is its start; for rindex, a position
 * after it is its end. The empty string is found at every position, even where no other string can be found. */
NP_ENTRY void np_index(struct np_context *context, u64 string, u64 wanted, u64 position)
{
	u64 length = np_text_length(context, string), bytes = np_text_length(context, wanted);
	i64 at = (i64)position;
	context->result = NOWHERE;
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
	context->result = first_place(string, length, wanted, bytes, (u64)at);
}

NP_ENTRY void np_rindex(struct np_context *context, u64 string, u64 wanted, u64 position)
{
	u64 length = np_text_length(context, string), bytes = np_text_length(context, wanted);
	i64 at = (i64)position;
	context->result = NOWHERE;
	if (at < 0 || (!length && !bytes)) {
		if (!bytes)
			context->result = 0;
		return;
	}
	if (bytes > length)
		return;
	/* Searches backwards, from the last possible place. */
	u64 end = np_minimum((u64)at, length - bytes) + bytes;
	struct direction in = { string + end - 1, wanted + bytes - 1, end, bytes, -1 };
	u64 found = search(&in);
	if (found != NOWHERE)
		context->result = end - found - bytes;
}

/* `state` is a string variable: the token is taken off its front, and the rest stays in the variable. Without a
 * token the result is NULL. */
NP_ENTRY void np_strtok(struct np_context *context, u64 state, u64 separators)
{
	u64 length = np_text_length(context, state), start = 0, end, separator_count = np_text_length(context, separators);
	u64 map[4] = { 0, 0, 0, 0 };
	for (u64 at = 0; at < separator_count; at++) {
		u8 byte = np_text_byte(separators, at);
		map[byte / 64] |= 1UL << byte % 64;
	}
#define IS_SEPARATOR(byte) (map[(byte) / 64] >> (byte) % 64 & 1)
	while (start < length && IS_SEPARATOR(np_text_byte(state, start)))
		start++;
	for (end = start; end < length && !IS_SEPARATOR(np_text_byte(state, end));)
		end++;
#undef IS_SEPARATOR
	context->result = 0;
	if (start < end)
		np_yield_copy(context, state + start, end - start);
	if (context->fault)
		return;
	/* The separator itself stays before the rest, where the next call skips it. */
	for (u64 at = end; at <= length; at++)
		np_text_put(state, at - end, at < length ? np_text_byte(state, at) : 0);
}

#define NP_SUBSTR_ALL (1UL << 63) /* no count was given: lang::interpret::text::ALL */

NP_ENTRY void np_substr(struct np_context *context, u64 string, u64 index, u64 count)
{
	i64 length = (i64)np_text_length(context, string), start = (i64)index, remaining = (i64)count;
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
	np_yield_copy(context, string + (u64)start, (u64)remaining);
}

/* Changes the case of ASCII letters only. */
NP_ENTRY void np_strcase(struct np_context *context, u64 string, u64 upper)
{
	u64 length = np_text_length(context, string);
	u8 first = upper ? 'a' : 'A';
	np_yield_copy(context, string, length);
	if (context->fault)
		return;
	u64 copy = context->result;
	for (u64 at = 0; at < length; at++) {
		u8 byte = np_text_byte(copy, at);
		if (byte >= first && byte < first + 26)
			np_text_put(copy, at, byte ^ 0x20);
	}
}

/* The last component, or the path before it, as basename(1) and dirname(1). */
static void path_part(struct np_context *context, u64 string, int base)
{
	i64 length = (i64)np_text_length(context, string), at = length - 1, last_base, first_base, last_directory;
	u64 dot = (u64)'.';
	if (!length) {
		np_yield_copy(context, (u64)&dot, 1);
		return;
	}
	while (at >= 0 && np_text_byte(string, (u64)at) == '/')
		at--;
	last_base = at;
	while (at >= 0 && np_text_byte(string, (u64)at) != '/')
		at--;
	first_base = at + 1;
	while (at >= 0 && np_text_byte(string, (u64)at) == '/')
		at--;
	last_directory = at;
	if (last_base < 0) /* slashes only */
		np_yield_copy(context, string, 1);
	else if (base)
		np_yield_copy(context, string + (u64)first_base, (u64)(last_base - first_base + 1));
	else if (first_base == 0) /* no slash */
		np_yield_copy(context, (u64)&dot, 1);
	else
		np_yield_copy(context, string, last_directory < 0 ? 1 : (u64)last_directory + 1);
}

NP_ENTRY void np_basename(struct np_context *context, u64 string)
{
	path_part(context, string, 1);
}

NP_ENTRY void np_dirname(struct np_context *context, u64 string)
{
	path_part(context, string, 0);
}

/* Whether a path that does not begin with a slash has a component `..`. */
static int leads_up(u64 string, u64 length)
{
	u64 at = 0;
	if (!length || np_text_byte(string, 0) == '/')
		return 0;
	while (at < length) {
		u64 start = at;
		while (at < length && np_text_byte(string, at) != '/')
			at++;
		if (at - start == 2 && np_text_byte(string, start) == '.' && np_text_byte(string, start + 1) == '.')
			return 1;
		at++;
	}
	return 0;
}

/* A relative path, component by component. `..` takes back the component before it; a `..` that
 * leads out of the path's first directory stays. */
static void clean_relative(struct np_context *context, u64 string, u64 length)
{
	/* `fixed`: the leading `..`. */
	u64 in = 0, out = 0, fixed = 0, path = np_scratch_make(context, length + 2);
	if (!path)
		return;
	while (in < length) {
		u64 start = in, size;
		int up;
		while (in < length && np_text_byte(string, in) != '/')
			in++;
		size = in++ - start;
		if (!size || (size == 1 && np_text_byte(string, start) == '.'))
			continue;
		up = size == 2 && np_text_byte(string, start) == '.' && np_text_byte(string, start + 1) == '.';
		if (up && out > fixed) {
			while (out > fixed && np_text_byte(path, --out) != '/')
				;
			continue;
		}
		if (out)
			np_text_put(path, out++, '/');
		for (u64 at = 0; at < size; at++)
			np_text_put(path, out++, np_text_byte(string, start + at));
		if (up)
			fixed = out;
	}
	if (!out)
		np_text_put(path, out++, '.');
	np_text_put(path, out, 0);
	context->result = path;
}

/* The path without empty components, `.` and `..`. Only the text is examined; no link is followed. */
NP_ENTRY void np_cleanpath(struct np_context *context, u64 string)
{
	u64 length = np_text_length(context, string), strsize = np_control_block(context)->strsize, in = 0, out = 0;
	/* DTrace stops five bytes before strsize, and a `..` at the end may write one byte more than it removes. */
	u64 path;
	u8 byte;
	if (leads_up(string, length)) {
		clean_relative(context, string, length);
		return;
	}
	path = np_scratch_make(context, length + 6);
	if (!path)
		return;
#define NEXT() (in < length ? np_text_byte(string, in++) : (in++, 0))
	do {
		byte = NEXT();
again:
		if (out + 5 >= strsize)
			break;
		if (byte != '/') {
			np_text_put(path, out++, byte);
			continue;
		}
		byte = NEXT();
		if (byte == '/')
			goto again;
		if (byte != '.') {
			np_text_put(path, out++, '/');
			np_text_put(path, out++, byte);
			continue;
		}
		byte = NEXT();
		if (byte == '/')
			goto again;
		if (byte != '.') {
			np_text_put(path, out++, '/');
			np_text_put(path, out++, '.');
			np_text_put(path, out++, byte);
			continue;
		}
		byte = NEXT();
		if (byte != '/' && byte) {
			np_text_put(path, out++, '/');
			np_text_put(path, out++, '.');
			np_text_put(path, out++, '.');
			np_text_put(path, out++, byte);
			continue;
		}
		in--;
		/* At the end of the text, the character to which `..` goes back stays, whether it is a slash or not. At the
		 * front of the text, a slash stays. */
		if (!out)
			np_text_put(path, 0, '/');
		while (out && np_text_byte(path, --out) != '/')
			;
		if (!byte)
			out++;
	} while (byte);
#undef NEXT
	np_text_put(path, out, 0);
	context->result = path;
}
