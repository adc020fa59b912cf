/* json(text, path): the part of a JSON text that a path names, as illumos' dtrace_json finds it.
 * crates/lang, interpret/json.rs, does the same, and states the details.
 *
 * One pass over both strings: every byte read moves `at` forward, so strsize bounds the time.
 */
#include "text.h"

struct reader {
	u64 text;
	u64 length;
	u64 at;
};
#define NONE 256u /* no byte */

static inline u32 next_byte(struct reader *reader)
{
	return reader->at < reader->length ? np_text_byte(reader->text, reader->at++) : NONE;
}

/* The next byte that is not a space. */
static inline u32 next_token(struct reader *reader)
{
	u32 byte;
	do {
		byte = next_byte(reader);
	} while (byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n' || byte == '\f');
	return byte;
}

static inline int is_digit(u32 byte)
{
	return byte >= '0' && byte <= '9';
}

static inline int is_lower(u32 byte)
{
	return byte >= 'a' && byte <= 'z';
}

/* The character of an escape after a backslash; NONE: it is not an escape. */
static u32 skip_escape(struct reader *reader)
{
	u32 byte = next_byte(reader);
	if (byte != 'u')
		return byte == NONE ? NONE : 0;
	for (u32 left = 4; left; left--) {
		byte = next_byte(reader);
		if (!is_digit(byte) && !(byte >= 'a' && byte <= 'f') && !(byte >= 'A' && byte <= 'F'))
			return NONE;
	}
	return 0;
}

/* Moves to the position after the closing quote. Yields whether there is a closing quote. */
static int skip_string(struct reader *reader)
{
	for (;;) {
		u32 byte = next_byte(reader);
		if (byte == '\\')
			byte = skip_escape(reader);
		if (byte == NONE)
			return 0;
		if (byte == '"')
			return 1;
	}
}

/* Moves to the end of a number whose first byte was read. Yields whether this is a number that is followed by a
   further byte. */
static int skip_number(struct reader *reader)
{
	int in_fraction = 0, in_exponent = 0;
	for (;;) {
		u32 byte = next_byte(reader);
		if (byte == NONE)
			return 0;
		if (is_digit(byte))
			continue;
		if (byte == '+' || byte == '-') {
			if (!in_exponent)
				return 0;
		} else if ((byte == 'e' || byte == 'E') && !in_exponent) {
			in_exponent = 1;
		} else if (byte == '.' && !in_fraction && !in_exponent) {
			in_fraction = 1;
		} else {
			reader->at--;
			return !((byte == 'x' || byte == 'X') && !in_fraction && !in_exponent);
		}
	}
}

/* Moves to the end of true, false or null, whose first byte was read. Yields whether this is one of these words,
 * followed by a further byte. */
static int skip_word(struct reader *reader)
{
	u64 start = reader->at - 1, word = 0;
	u32 byte;
	while (is_lower(byte = next_byte(reader)))
		;
	if (byte == NONE)
		return 0;
	reader->at--;
	if (reader->at - start > 5)
		return 0;
	for (u64 at = start; at < reader->at; at++)
		word = word << 8 | np_text_byte(reader->text, at);
	return word == 0x74727565 /* true */ || word == 0x66616c7365 /* false */ || word == 0x6e756c6c /* null */;
}

/* The value that begins here, [*start, *end); for a string, the text between the quotes. */
static int skip_value(struct reader *reader, u64 *start, u64 *end)
{
	u32 byte = next_token(reader);
	if (byte == NONE)
		return 0;
	*start = reader->at - 1;
	if (byte == '"') {
		*start = reader->at;
		if (!skip_string(reader))
			return 0;
		*end = reader->at - 1;
		return 1;
	}
	if (byte == '{' || byte == '[') {
		u64 braces = byte == '{', brackets = byte == '[';
		while (braces || brackets) {
			byte = next_byte(reader);
			if (byte == NONE || (byte == '"' && !skip_string(reader)) || (byte == '}' && !braces) ||
			    (byte == ']' && !brackets))
				return 0;
			braces += (u64)(byte == '{') - (u64)(byte == '}');
			brackets += (u64)(byte == '[') - (u64)(byte == ']');
		}
	} else if (byte == '-' || is_digit(byte) ? !skip_number(reader) : !is_lower(byte) || !skip_word(reader)) {
		return 0;
	}
	*end = reader->at;
	return 1;
}

/* Moves after the colon of the member of this name. */
static int find_member(struct reader *reader, u64 name, u64 name_bytes)
{
	for (;;) {
		u64 start, end, same = 0;
		if (next_token(reader) != '"')
			return 0;
		start = reader->at;
		if (!skip_string(reader))
			return 0;
		if (reader->at - 1 - start == name_bytes)
			for (same = 0; same < name_bytes; same++)
				if (np_text_byte(reader->text, start + same) != np_text_byte(name, same))
					break;
		int is_it = reader->at - 1 - start == name_bytes && same == name_bytes;
		if (next_token(reader) != ':')
			return 0;
		if (is_it)
			return 1;
		if (!skip_value(reader, &start, &end) || next_token(reader) != ',')
			return 0;
	}
}

/* Moves to the start of the array element with this number. The number is read as by strtoll(). */
static int find_element(struct reader *reader, u64 digits, u64 digit_count)
{
	u64 at = 0, wanted = 0, start, end;
	while (at < digit_count && (np_text_byte(digits, at) == ' ' || np_text_byte(digits, at) == '\t'))
		at++;
	if (at < digit_count && np_text_byte(digits, at) == '+')
		at++;
	else if (at < digit_count && np_text_byte(digits, at) == '-')
		wanted = ~0UL; /* before all elements */
	for (; at < digit_count && wanted <= reader->length; at++) {
		u32 digit = np_text_byte(digits, at) - (u32)'0';
		if (digit > 9)
			break;
		wanted = wanted * 10 + digit;
	}
	if (wanted > reader->length)
		return 0;
	for (; wanted; wanted--)
		if (!skip_value(reader, &start, &end) || next_token(reader) != ',')
			return 0;
	return 1;
}

NP_ENTRY void np_json(struct np_context *context, u64 text, u64 path)
{
	struct reader reader = { text, np_text_length(context, text), 0 };
	u64 path_bytes = np_text_length(context, path), found = 0, start = 0, end = 0;
	for (u64 at = 0; at < path_bytes;) {
		u64 from = at;
		for (; at < path_bytes; at++) {
			u8 byte = np_text_byte(path, at);
			if (byte == '.' || byte == '[' || byte == ']')
				break;
		}
		u64 bytes = at++ - from;
		if (!bytes)
			continue;
		u32 opening = next_token(&reader);
		if (opening == '{')
			found = (u64)find_member(&reader, path + from, bytes);
		else
			found = opening == '[' && find_element(&reader, path + from, bytes);
		if (!found)
			break;
	}
	context->result = 0;
	if (found && skip_value(&reader, &start, &end))
		np_yield_copy(context, text + start, end - start);
}
