/* Numbers to text and back, network addresses, and random numbers; with DTrace's results
 * (illumos, dtrace_dif_subr). */
#include "ranges.h"
#include "ring.h"
#include "scratch.h"
#include "strings.h"

#define AF_INET 2
#define AF_INET6 10
/* linux/if_arp.h's */
#define ARPHRD_ETHER 1
#define ARPHRD_INFINIBAND 32
/* The sign, 0x, 64 binary digits and the NUL. An IPv6 address with an IPv4 one in it is shorter,
 * and so are the 20 bytes of an InfiniBand address. */
#define LONGEST 72

/* Text is made from its end towards its start. */
struct backwards {
	u8 bytes[LONGEST];
	u64 start;
};

NP_INLINE void put(struct backwards *text, u8 byte)
{
	text->bytes[--text->start] = byte;
}

NP_INLINE void put_number(struct backwards *text, u64 value, u64 base)
{
	do {
		u8 digit = (u8)(value % base);
		put(text, digit < 10 ? '0' + digit : 'a' + (digit - 10));
		value /= base;
	} while (value);
}

static void yield_text(struct np_context *context, const struct backwards *text)
{
	u64 bytes = LONGEST - text->start, copy = np_scratch_make(context, bytes + 1);
	if (!copy)
		return;
	for (u64 at = 0; at < bytes; at++)
		*(volatile u8 *)(copy + at) = text->bytes[text->start + at];
	*(volatile u8 *)(copy + bytes) = 0;
	context->result = copy;
}

static int is_base(struct np_context *context, u64 base)
{
	if (base >= 2 && base <= 36)
		return 1;
	np_fault(context, NP_FAULT_ILLEGAL, 0);
	context->result = (u64)np_zeros;
	return 0;
}

NP_ENTRY void np_lltostr(struct np_context *context, u64 value, u64 base)
{
	struct backwards text;
	text.start = LONGEST;
	if (!is_base(context, base))
		return;
	int negative = base == 10 && (i64)value < 0;
	if (base == 8 && !value) {
		put(&text, '0');
	} else {
		put_number(&text, negative ? -value : value, base);
		if (base == 16)
			put(&text, 'x');
		if (base == 8 || base == 16)
			put(&text, '0');
		if (negative)
			put(&text, '-');
	}
	yield_text(context, &text);
}

NP_INLINE u64 digit_of(u8 byte)
{
	if (byte >= '0' && byte <= '9')
		return (u64)(byte - '0');
	byte |= 0x20;
	return byte >= 'a' && byte <= 'z' ? (u64)(byte - 'a') + 10 : 99;
}

NP_ENTRY void np_strtoll(struct np_context *context, u64 string, u64 base)
{
	u64 end = string + np_control_block(context)->strsize - 1, value = 0, negative = 0;
	if (!is_base(context, base)) {
		context->result = 0;
		return;
	}
#define HERE() (string < end ? *(const volatile u8 *)string : 0)
	while (HERE() == ' ' || HERE() == '\t')
		string++;
	if (HERE() == '-' || HERE() == '+') {
		negative = HERE() == '-';
		string++;
	}
	if (base == 16 && HERE() == '0') {
		string++;
		u8 mark = HERE();
		if (mark == 'x' || mark == 'X') {
			string++;
			if (digit_of(HERE()) >= 16)
				string -= 2;
		} else {
			string--;
		}
	}
	for (; digit_of(HERE()) < base; string++)
		value = value * base + digit_of(HERE());
#undef HERE
	context->result = negative ? -value : value;
}

NP_INLINE void put_ipv4(struct backwards *text, const u8 *address)
{
	for (int at = 3; at >= 0; at--) {
		put_number(text, address[at], 10);
		if (at)
			put(text, '.');
	}
}

/* An address `::ffff:a.b.c.d` holds an IPv4 address, and so does `::a.b.c.d`, except :: and ::1. */
NP_INLINE int holds_ipv4(const u8 *address)
{
	for (int at = 0; at < 10; at++)
		if (address[at])
			return 0;
	if (address[10] == 0xff && address[11] == 0xff)
		return 1;
	return !address[10] && !address[11] &&
	       (address[12] || address[13] || address[14] || address[15] > 1);
}

/* RFC 1884, convention 2, with the oddities of DTrace: a single zero word is compressed, but not
 * the last one. Where the address holds an IPv4 address, zeros that reach into that are not
 * compressed. Positions are bytes. */
static void put_ipv6(struct backwards *text, const u8 *address, u64 short_form)
{
	int first = -1, candidate = -1, count = 1, end = 14;
	for (int at = 0; at < 16; at++) {
		if (!address[at] && candidate < 0 && at % 2 == 0) {
			candidate = at;
		} else if (candidate >= 0 && (address[at] || at == 15)) {
			if (at - candidate > count) {
				first = candidate;
				count = at - at % 2 - candidate;
				if (!address[at] && at == 15)
					count += 2;
			}
			candidate = -1;
		}
	}
	if (holds_ipv4(address)) {
		put_ipv4(text, address + 12);
		if (short_form)
			return;
		end = 10;
	}
	for (int at = end; at >= 0; at -= 2) {
		if (at == first + count - 2) {
			put(text, ':');
			put(text, ':');
			at -= count - 2;
			continue;
		}
		if (at < 14 && at != first - 2)
			put(text, ':');
		put_number(text, (u64)address[at] << 8 | address[at + 1], 16);
	}
}

NP_ENTRY void np_inet_ntop(struct np_context *context, u64 family, u64 address, u64 short_form)
{
	struct backwards text;
	u64 bytes[2] = { 0, 0 }, size = family == AF_INET ? 4 : 16;
	text.start = LONGEST;
	context->result = (u64)np_zeros;
	if (family != AF_INET && family != AF_INET6) {
		np_fault(context, NP_FAULT_ILLEGAL, 0);
		return;
	}
	if (!np_fetch(context, (u64)bytes, address, size)) {
		np_fault(context, NP_FAULT_BAD_ADDRESS, address);
		return;
	}
	if (family == AF_INET)
		put_ipv4(&text, (const u8 *)bytes);
	else
		put_ipv6(&text, (const u8 *)bytes, short_form);
	yield_text(context, &text);
}

NP_ENTRY void np_link_ntop(struct np_context *context, u64 type, u64 address)
{
	struct backwards text;
	u64 bytes[3] = { 0, 0, 0 }, size = type == ARPHRD_ETHER ? 6 : 20;
	text.start = LONGEST;
	context->result = (u64)np_zeros;
	if (type != ARPHRD_ETHER && type != ARPHRD_INFINIBAND) {
		np_fault(context, NP_FAULT_ILLEGAL, 0);
		return;
	}
	if (!np_fetch(context, (u64)bytes, address, size)) {
		np_fault(context, NP_FAULT_BAD_ADDRESS, address);
		return;
	}
	for (u64 at = size; at-- > 0;) {
		u8 byte = ((const u8 *)bytes)[at];
		put_number(&text, byte & 15, 16);
		put_number(&text, byte >> 4, 16);
		if (at)
			put(&text, ':');
	}
	yield_text(context, &text);
}

/* The number comes from the time stamp counter and the thread, as in all versions of DTrace. That is good enough
 * for sampling. */
NP_ENTRY void np_rand(struct np_context *context)
{
	u64 mixed = np_tsc() + context->thread_key + context->scratch_used;
	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9UL;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebUL;
	context->result = (mixed ^ mixed >> 31) & 0x7fffffff;
}
