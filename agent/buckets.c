/* The aggregating functions whose update is more than an addition. arena::buckets has the same arithmetic, and a
 * test compares the two. A `words` of 0 (no room) is ignored. */
#include "agent.h"

NP_ENTRY void np_quantize(struct np_context *context, u64 words, u64 value, u64 weight)
{
	(void)context;
	if (!words)
		return;
	/* 127 buckets around the zero bucket, 63: bucket 64 + k holds [2^k, 2^(k+1)), bucket 62 - k the
	 * same, negated. The least i64 has no bucket of its own and is counted in bucket 0. */
	u64 bucket = 63;
	if ((i64)value > 0) {
		bucket = 64 + (63 - (u64)__builtin_clzl(value));
	} else if (value) {
		u64 order = 63 - (u64)__builtin_clzl(0 - value);
		bucket = order > 62 ? 0 : 62 - order;
	}
	((u64 *)words)[bucket] += weight;
}

NP_ENTRY void np_lquantize(struct np_context *context, u64 words, u64 value, u64 weight, u64 parameters)
{
	(void)context;
	u64 step = parameters >> 48, levels = parameters >> 32 & 0xffff;
	i64 base = (i32)parameters;
	if (!words || !step)
		return;
	u64 bucket = 0;
	if ((i64)value >= base) {
		/* The distance between an i64 and a larger i64 always fits a u64. */
		u64 level = (value - (u64)base) / step;
		bucket = np_minimum(level, levels) + 1;
	}
	((u64 *)words)[bucket] += weight;
}

NP_ENTRY void np_llquantize(struct np_context *context, u64 words, u64 value, u64 weight, u64 parameters)
{
	(void)context;
	i64 factor = (i64)(parameters >> 48), steps = (i64)(parameters & 0xffff);
	u64 low = parameters >> 32 & 0xffff, high = parameters >> 16 & 0xffff;
	/* The language already refuses such parameters. Below 64 orders of magnitude every loop is short. */
	if (!words || factor < 2 || steps < factor || low > 63 || high > 63)
		return;
	/* Word 0 counts all values around zero; word `top` all above the last order; word `top + n` the
	 * negated values of word n. */
	i64 this = 1, last, wanted = (i64)value;
	int overflow = 0, negative = wanted < 0;
	if (negative)
		wanted = value == 1ul << 63 ? 0x7fffffffffffffff : -wanted;
	u64 order, top = 1, word = 0;
	for (order = 0; order < low && !overflow; order++)
		overflow = __builtin_mul_overflow(this, factor, &this);
	last = this;
	if (!overflow && wanted >= last) {
		overflow = __builtin_mul_overflow(this, factor, &this);
		for (; order <= high && !overflow; order++) {
			i64 next, count = this > steps ? steps : this;
			overflow = __builtin_mul_overflow(this, factor, &next);
			if (!word && wanted < this) {
				word = top + (u64)((wanted - last) / (this / count));
				if (!negative)
					break;
			}
			top += (u64)(count - count / factor);
			last = this;
			this = next;
		}
		if (!word)
			word = top;
		if (negative)
			word += top;
	}
	((u64 *)words)[word] += weight;
}

NP_ENTRY void np_stddev(struct np_context *context, u64 words, u64 value)
{
	(void)context;
	if (!words)
		return;
	u64 *state = (u64 *)words;
	i64 number = (i64)value;
	u64 magnitude = number < 0 ? 0 - value : value;
	unsigned __int128 square = (unsigned __int128)magnitude * magnitude;
	unsigned __int128 sum = ((unsigned __int128)state[3] << 64 | state[2]) + square;
	state[0]++;
	state[1] += value;
	state[2] = (u64)sum;
	state[3] = (u64)(sum >> 64);
}
