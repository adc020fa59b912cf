/* What the kernel knows of a socket: its protocol, and the addresses of its two ends. The calls that ask it do not
 * wait for data. The kernel may hold the socket's lock for a moment in them, as in the program's own call.
 *
 * An address of IPv4 in IPv6's form (::ffff:192.0.2.1) is one of IPv4: such are the packets. */
#include "ranges.h"
#include "runtimes.h"
#include "scratch.h"
#include "syscalls.h"

enum {
	SOL_SOCKET = 1,
	SO_TYPE = 3,
	SO_PEERNAME = 28,
	SO_PROTOCOL = 38,
	SO_DOMAIN = 39,
	SO_COOKIE = 57,
	SOCK_STREAM = 1,
	SOCK_DGRAM = 2,
	AF_INET = 2,
	AF_INET6 = 10,
	IPPROTO_TCP = 6,
	IPPROTO_UDP = 17,
	IPPROTO_MPTCP = 262,
	MESSAGES_MAX = 1024, /* the kernel takes no more in a call */
	MESSAGE_STEP = 64,   /* bytes of a struct mmsghdr */
	MESSAGE_BYTES = 56,  /* its msg_len */
	IPV4_BYTES = 16,     /* bytes of a struct sockaddr_in */
	IPV6_BYTES = 28,
};

/* A struct sockaddr_in or sockaddr_in6; the family is 0 if the socket has no such address. */
struct end {
	union {
		u16 family;
		u64 words[4];
		u8 bytes[32];
	};
};

static u64 option(u64 descriptor, u64 name)
{
	u64 value = 0;
	volatile u32 length = sizeof value;
	i64 failed = np_syscall6(NP_SYS_GETSOCKOPT, descriptor, SOL_SOCKET, name, (u64)&value, (u64)&length, 0);
	return failed ? 0 : *(volatile u64 *)&value;
}

/* IPPROTO_TCP, IPPROTO_UDP, or 0. Other families number their protocols otherwise. */
static u64 protocol(u64 descriptor)
{
	u64 number = option(descriptor, SO_PROTOCOL);
	u64 type = number == IPPROTO_UDP ? SOCK_DGRAM : SOCK_STREAM;
	if (number != IPPROTO_TCP && number != IPPROTO_UDP && number != IPPROTO_MPTCP)
		return 0;
	if (option(descriptor, SO_TYPE) != type)
		return 0;
	u64 family = option(descriptor, SO_DOMAIN);
	if (family != AF_INET && family != AF_INET6)
		return 0;
	return number == IPPROTO_UDP ? IPPROTO_UDP : IPPROTO_TCP;
}

static int is_internet(const struct end *end)
{
	return end->family == AF_INET || end->family == AF_INET6;
}

static int by_kernel(struct end *end, u64 call, u64 descriptor)
{
	volatile u32 length = IPV6_BYTES;
	end->words[0] = 0;
	i64 failed = np_syscall4((i64)call, descriptor, (u64)end, (u64)&length, 0);
	if (failed || length < IPV4_BYTES)
		end->family = 0;
	return is_internet(end);
}

static int by_program(struct np_context *context, struct end *end, u64 address)
{
	end->words[0] = 0;
	if (!address || !np_fetch(context, (u64)end, address, IPV4_BYTES))
		return 0;
	if (end->family == AF_INET6 && !np_fetch(context, (u64)end, address, IPV6_BYTES))
		end->family = 0;
	return is_internet(end);
}

/* The other end of a connection that has begun, or has already ended. The kernel wants the exact length. */
static int by_memory(struct end *end, u64 descriptor)
{
	volatile u32 length = IPV6_BYTES;
	end->words[0] = 0;
	i64 failed = np_syscall6(NP_SYS_GETSOCKOPT, descriptor, SOL_SOCKET, SO_PEERNAME, (u64)end, (u64)&length, 0);
	if (failed) {
		length = IPV4_BYTES;
		failed = np_syscall6(NP_SYS_GETSOCKOPT, descriptor, SOL_SOCKET, SO_PEERNAME, (u64)end, (u64)&length, 0);
	}
	if (failed)
		end->family = 0;
	return is_internet(end);
}

/* One end of a socket: NP_SOCKET_LOCAL, _PEER, _NAMED or _CONNECTED. */
static void find(struct np_context *context, struct end *end, u64 descriptor, u64 which, u64 given)
{
	if (which == NP_SOCKET_LOCAL)
		by_kernel(end, NP_SYS_GETSOCKNAME, descriptor);
	else if (which == NP_SOCKET_CONNECTED)
		by_kernel(end, NP_SYS_GETPEERNAME, descriptor);
	else if (which == NP_SOCKET_PEER)
		(void)(by_memory(end, descriptor) || by_program(context, end, given));
	else
		(void)(by_program(context, end, given) || by_memory(end, descriptor));
	if (end->family == AF_INET6 && end->words[1] == 0 && (u32)end->words[2] == 0xffff0000) {
		end->family = AF_INET;
		end->words[0] = (end->words[0] & 0xffffffff) | end->words[2] >> 32 << 32;
	}
}

NP_ENTRY void np_socket(struct np_context *context, u64 descriptor, u64 part, u64 given)
{
	struct end end;
	context->result = 0;
	if (!np_may_call()) {
		np_fault(context, NP_FAULT_ILLEGAL, 0);
		return;
	}
	descriptor = (u32)descriptor;
	if (part == NP_SOCKET_PROTOCOL) {
		context->result = protocol(descriptor);
	} else if (part == NP_SOCKET_COOKIE) {
		context->result = option(descriptor, SO_COOKIE);
	} else if (part == NP_SOCKET_VERSION) {
		find(context, &end, descriptor, NP_SOCKET_NAMED, given);
		if (!is_internet(&end))
			find(context, &end, descriptor, NP_SOCKET_LOCAL, 0);
		context->result = end.family == AF_INET ? 4 : end.family == AF_INET6 ? 6 : 0;
	} else {
		find(context, &end, descriptor, part, given);
		context->result = is_internet(&end) ? (u64)(end.bytes[2] << 8 | end.bytes[3]) : 0;
	}
}

NP_ENTRY void np_socket_address(struct np_context *context, u64 descriptor, u64 which, u64 given)
{
	struct end end;
	context->result = (u64)np_zeros;
	if (!np_may_call()) {
		np_fault(context, NP_FAULT_ILLEGAL, 0);
		return;
	}
	find(context, &end, (u32)descriptor, which, given);
	if (is_internet(&end)) {
		np_inet_ntop(context, end.family, (u64)&end.bytes[end.family == AF_INET ? 4 : 8], 0);
		return;
	}
	u64 text = np_scratch_make(context, 8);
	if (text) {
		*(volatile u64 *)text = 0x3e656e6f6e3c; /* <none> */
		context->result = text;
	}
}

NP_ENTRY void np_message_bytes(struct np_context *context, u64 address, u64 count)
{
	u64 all = 0, word;
	for (u64 message = 0; message < np_minimum(count, MESSAGES_MAX); message++) {
		if (!np_heap_word(context, address + message * MESSAGE_STEP + MESSAGE_BYTES, &word))
			break;
		all += (u32)word;
	}
	context->result = all;
}
