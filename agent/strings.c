/* strlen, strcmp and assignment of D strings. All of them stop after strsize - 1 bytes, the greatest length of a
 * string, whatever the bytes are. */
#include "strings.h"

NP_ENTRY void np_strlen(struct np_context *context, u64 string)
{
	u64 limit = np_control_block(context)->strsize - 1UL, done = 0;
	while (done < limit) {
		u64 zero = np_zero_bytes(np_string_word(string + done));
		if (zero) {
			done += (u32)__builtin_ctzl(zero) / 8;
			break;
		}
		done += 8;
	}
	context->result = np_minimum(done, limit);
}

NP_ENTRY void np_strcmp(struct np_context *context, u64 left, u64 right)
{
	u64 limit = np_control_block(context)->strsize - 1UL;
	context->result = 0;
	for (u64 done = 0; done < limit; done += 8) {
		u64 left_word = np_string_word(left + done), right_word = np_string_word(right + done);
		u64 left_zero = np_zero_bytes(left_word), right_zero = np_zero_bytes(right_word);
		if (left_zero)
			left_word = np_up_to_zero(left_word, left_zero);
		if (right_zero)
			right_word = np_up_to_zero(right_word, right_zero);
		u64 different = left_word ^ right_word;
		if (different) {
			u32 byte = (u32)__builtin_ctzl(different) / 8;
			if (done + byte < limit) {
				i64 order = (i64)(left_word >> (byte * 8) & 255) - (i64)(right_word >> (byte * 8) & 255);
				context->result = (u64)order;
			}
			return;
		}
		if (left_zero)
			return;
	}
}

NP_ENTRY void np_strcpy(struct np_context *context, u64 destination, u64 source, u64 capacity)
{
	u64 done = 0, ended = 0;
	(void)context;
	for (; done + 8 <= capacity; done += 8) {
		u64 word = 0;
		if (!ended) {
			word = np_string_word(source + done);
			u64 zero = np_zero_bytes(word);
			if (zero) {
				word = np_up_to_zero(word, zero);
				ended = 1;
			}
		}
		*(volatile u64 *)(destination + done) = word;
	}
	for (; done < capacity; done++) {
		u8 byte = ended ? 0 : *(const volatile u8 *)(source + done);
		ended |= !byte;
		*(volatile u8 *)(destination + done) = byte;
	}
	if (capacity && !ended)
		*(volatile u8 *)(destination + capacity - 1) = 0;
}
