/* Connects, accepts, sends and receives by every call that can, over IPv4, IPv6 and IPv4 on a socket of IPv6.
 * network [rounds]
 * Prints each kind of event with its ends, as this program knows them: `tcp.send 127.0.0.1,4711 127.0.0.1,80 calls
 * bytes`. The source is the first end. Calls on pipes, files and sockets of other families are no events. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include "check.h"

enum { EVENTS_MAX = 8192, KEY = 160, PIECE = 100 };
enum form { IPV4, IPV6, MAPPED, FORMS };

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static struct event {
	char key[KEY];
	long calls, bytes;
} events[EVENTS_MAX];
static int event_count;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static char payload[PIECE];

static void format(char *text, size_t room, const union address *end)
{
	char digits[INET6_ADDRSTRLEN];
	if (end->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&end->v6.sin6_addr))
		CHECK(inet_ntop(AF_INET, end->v6.sin6_addr.s6_addr + 12, digits, sizeof digits));
	else if (end->any.sa_family == AF_INET6)
		CHECK(inet_ntop(AF_INET6, &end->v6.sin6_addr, digits, sizeof digits));
	else
		CHECK(inet_ntop(AF_INET, &end->v4.sin_addr, digits, sizeof digits));
	/* The port is at the same place in both. */
	snprintf(text, room, "%s,%d", digits, ntohs(end->v4.sin_port));
}

static void note_ends(const char *kind, const union address *source, const union address *target, long bytes)
{
	char from[64], to[64], key[KEY];
	format(from, sizeof from, source);
	format(to, sizeof to, target);
	snprintf(key, sizeof key, "%s %s %s", kind, from, to);
	pthread_mutex_lock(&counting);
	int at = 0;
	while (at < event_count && strcmp(events[at].key, key) != 0)
		at++;
	CHECK(at < EVENTS_MAX);
	if (at == event_count)
		strcpy(events[event_count++].key, key);
	events[at].calls++;
	events[at].bytes += bytes;
	pthread_mutex_unlock(&counting);
}

/* An event of a socket. `other`: the other end, if the socket is not connected to it. */
static void note(const char *kind, int fd, const union address *other, int outward, long bytes)
{
	union address own, peer;
	socklen_t length = sizeof own;
	CHECK(getsockname(fd, &own.any, &length) == 0);
	length = sizeof peer;
	if (other)
		peer = *other;
	else
		CHECK(getpeername(fd, &peer.any, &length) == 0);
	note_ends(kind, outward ? &own : &peer, outward ? &peer : &own, bytes);
}

/* Two messages of sendmmsg: one event. musl makes two calls of sendmsg of them. */
static void note_both(const char *kind, int fd, const union address *other, long bytes_each)
{
#ifdef __GLIBC__
	note(kind, fd, other, 1, 2 * bytes_each);
#else
	note(kind, fd, other, 1, bytes_each);
	note(kind, fd, other, 1, bytes_each);
#endif
}

static socklen_t length_of(const union address *address)
{
	return address->any.sa_family == AF_INET ? sizeof address->v4 : sizeof address->v6;
}

static union address loopback(enum form form, int port)
{
	union address address;
	memset(&address, 0, sizeof address);
	if (form == IPV4) {
		address.v4.sin_family = AF_INET;
		address.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	} else {
		address.v6.sin6_family = AF_INET6;
		CHECK(inet_pton(AF_INET6, form == IPV6 ? "::1" : "::ffff:127.0.0.1", &address.v6.sin6_addr) == 1);
	}
	address.v4.sin_port = htons((uint16_t)port);
	return address;
}

static int made(enum form form, int type)
{
	int fd = socket(form == IPV4 ? AF_INET : AF_INET6, type, 0);
	CHECK(fd >= 0);
	return fd;
}

/* A socket that is bound to a free port; it listens if it can. */
static int bound(enum form form, int type, union address *address)
{
	socklen_t length = sizeof *address;
	int fd = made(form, type);
	*address = loopback(form, 0);
	CHECK(bind(fd, &address->any, length_of(address)) == 0);
	CHECK(getsockname(fd, &address->any, &length) == 0);
	if (type == SOCK_STREAM)
		CHECK(listen(fd, 100) == 0);
	return fd;
}

static int opened_payload(void)
{
	int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	CHECK(file >= 0 && write(file, payload, PIECE) == PIECE && lseek(file, 0, SEEK_SET) == 0);
	return file;
}

/* Sends by every call. Each sends whole pieces, because the other side reads. */
static void send_all(int fd, const union address *peer)
{
	struct iovec parts[2] = { { payload, 30 }, { payload + 30, 20 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	struct mmsghdr both[2] = { { .msg_hdr = message }, { .msg_hdr = message } };
	int copy = dup(fd), pipes[2], file = opened_payload();
	CHECK(copy >= 0 && pipe(pipes) == 0);
	CHECK(write(copy, payload, PIECE) == PIECE);
	note("tcp.send", fd, peer, 1, PIECE);
	CHECK(writev(fd, parts, 2) == 50);
	note("tcp.send", fd, peer, 1, 50);
	CHECK(send(copy, payload, 7, 0) == 7);
	note("tcp.send", fd, peer, 1, 7);
	CHECK(sendmsg(fd, &message, MSG_NOSIGNAL) == 50);
	note("tcp.send", fd, peer, 1, 50);
	CHECK(sendmmsg(fd, both, 2, 0) == 2 && both[0].msg_len == 50 && both[1].msg_len == 50);
	note_both("tcp.send", fd, peer, 50);
	CHECK(sendfile(fd, file, NULL, PIECE) == PIECE);
	note("tcp.send", fd, peer, 1, PIECE);
	CHECK(write(pipes[1], payload, 20) == 20 && splice(pipes[0], NULL, copy, NULL, 20, 0) == 20);
	note("tcp.send", fd, peer, 1, 20);
	CHECK(write(fd, payload, 0) == 0 && send(fd, NULL, 3, 0) == -1);
	close(copy);
	close(file);
	close(pipes[0]);
	close(pipes[1]);
}

/* Receives by every call in turn, until the other side sends no more. */
static void receive_all(int fd, const union address *peer)
{
	char bytes[PIECE], more[PIECE];
	struct iovec parts[2] = { { bytes, 10 }, { more, 7 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	struct mmsghdr one = { .msg_hdr = message };
	int pipes[2];
	long moved = 1;
	CHECK(pipe(pipes) == 0);
	for (int turn = 0; moved > 0; turn++) {
		switch (turn % 7) {
		case 0: moved = read(fd, bytes, 9); break;
		case 1: moved = readv(fd, parts, 2); break;
		case 2: moved = recv(fd, bytes, 11, 0); break;
		case 3: moved = recvmsg(fd, &message, 0); break;
		case 4:
			moved = recvmmsg(fd, &one, 1, 0, NULL);
			moved = moved == 1 ? one.msg_len : 0;
			break;
		case 5:
			moved = splice(fd, NULL, pipes[1], NULL, 13, 0);
			if (moved > 0)
				CHECK(read(pipes[0], bytes, PIECE) == moved);
			break;
		default:
			moved = recv(fd, bytes, 5, MSG_PEEK);
			CHECK(moved >= 0);
			continue;
		}
		CHECK(moved >= 0);
		if (moved > 0)
			note("tcp.receive", fd, peer, 0, moved);
	}
	close(pipes[0]);
	close(pipes[1]);
}

static long rounds;
/* What a server's thread gets. */
struct server {
	int listener;
	long connections;
};

static void *serve(void *argument)
{
	struct server *server = argument;
	for (long done = 0; done < server->connections; done++) {
		union address peer;
		socklen_t length = sizeof peer;
		int fd = done % 2 ? accept(server->listener, NULL, NULL)
		                  : accept4(server->listener, &peer.any, &length, SOCK_CLOEXEC);
		CHECK(fd >= 0);
		length = sizeof peer;
		CHECK(getpeername(fd, &peer.any, &length) == 0);
		note("tcp.accept-established", fd, &peer, 0, 0);
		receive_all(fd, &peer);
		CHECK(send(fd, payload, 3, MSG_NOSIGNAL) == 3);
		note("tcp.send", fd, &peer, 1, 3);
		close(fd);
	}
	return NULL;
}

/* The rest of a connection: to the server and back. */
static void use(int fd, const union address *server, int sends_all)
{
	char bytes[8];
	fcntl(fd, F_SETFL, 0);
	if (sends_all)
		send_all(fd, server);
	CHECK(shutdown(fd, SHUT_WR) == 0);
	CHECK(recv(fd, bytes, 3, MSG_WAITALL) == 3);
	/* The connection has ended by now, and getpeername fails. */
	note("tcp.receive", fd, server, 0, 3);
	CHECK(read(fd, bytes, 1) == 0);
	close(fd);
}

static void note_request(int fd, const union address *server)
{
	union address own;
	socklen_t length = sizeof own;
	CHECK(getsockname(fd, &own.any, &length) == 0);
	note_ends("tcp.connect-request", &own, server, 0);
}

static void wait_until_connected(int fd)
{
	struct pollfd one = { .fd = fd, .events = POLLOUT };
	CHECK(poll(&one, 1, -1) == 1);
}

static int error_of(int fd)
{
	int error = -1;
	socklen_t length = sizeof error;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
	return error;
}

/* Begins without waiting. */
static int begun(enum form form, const union address *server)
{
	int fd = made(form, SOCK_STREAM | SOCK_NONBLOCK);
	note_request(fd, server);
	CHECK(connect(fd, &server->any, length_of(server)) == -1 && errno == EINPROGRESS);
	return fd;
}

enum { CONNECTIONS = 4 };

static void connect_in_all_ways(enum form form, const union address *server)
{
	/* Waits. */
	int fd = made(form, SOCK_STREAM);
	note_request(fd, server);
	CHECK(connect(fd, &server->any, length_of(server)) == 0);
	note("tcp.connect-established", fd, NULL, 0, 0);
	CHECK(connect(fd, &server->any, length_of(server)) == -1 && errno == EISCONN);
	use(fd, server, 1);
	/* Asks for the error, twice. */
	fd = begun(form, server);
	wait_until_connected(fd);
	CHECK(error_of(fd) == 0 && error_of(fd) == 0);
	note("tcp.connect-established", fd, NULL, 0, 0);
	use(fd, server, 1);
	/* Calls connect again. */
	fd = begun(form, server);
	wait_until_connected(fd);
	CHECK(connect(fd, &server->any, length_of(server)) == 0);
	note("tcp.connect-established", fd, NULL, 0, 0);
	use(fd, server, 0);
	/* Asks for nothing, and writes. */
	fd = begun(form, server);
	wait_until_connected(fd);
	note("tcp.connect-established", fd, NULL, 0, 0);
	use(fd, server, 1);
}

/* Nobody listens at the address. */
static void be_refused(enum form form, const union address *nobody)
{
	union address own;
	socklen_t length = sizeof own;
	int fd = made(form, SOCK_STREAM);
	note_request(fd, nobody);
	CHECK(connect(fd, &nobody->any, length_of(nobody)) == -1 && errno == ECONNREFUSED);
	CHECK(getsockname(fd, &own.any, &length) == 0);
	note_ends("tcp.connect-refused", nobody, &own, 0);
	close(fd);
	fd = begun(form, nobody);
	wait_until_connected(fd);
	CHECK(error_of(fd) == ECONNREFUSED);
	length = sizeof own;
	CHECK(getsockname(fd, &own.any, &length) == 0);
	note_ends("tcp.connect-refused", nobody, &own, 0);
	CHECK(error_of(fd) == 0);
	close(fd);
}

static void send_datagrams(int fd, const union address *to)
{
	struct iovec part = { payload, 40 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	if (to) {
		message.msg_name = (void *)to;
		message.msg_namelen = length_of(to);
	}
	struct mmsghdr both[2] = { { .msg_hdr = message }, { .msg_hdr = message } };
	CHECK(sendto(fd, payload, 60, 0, to ? &to->any : NULL, to ? length_of(to) : 0) == 60);
	note("udp.send", fd, to, 1, 60);
	CHECK(sendto(fd, payload, 0, 0, to ? &to->any : NULL, to ? length_of(to) : 0) == 0);
	note("udp.send", fd, to, 1, 0);
	CHECK(sendmsg(fd, &message, 0) == 40);
	note("udp.send", fd, to, 1, 40);
	CHECK(sendmmsg(fd, both, 2, 0) == 2);
	note_both("udp.send", fd, to, 40);
	if (to)
		return;
	CHECK(write(fd, payload, 11) == 11);
	note("udp.send", fd, NULL, 1, 11);
	CHECK(writev(fd, &part, 1) == 40);
	note("udp.send", fd, NULL, 1, 40);
}

/* The five or seven datagrams of send_datagrams. */
static void receive_datagrams(int fd, long expected)
{
	char bytes[PIECE];
	union address peer;
	struct iovec part = { bytes, PIECE };
	struct msghdr message = { .msg_name = &peer, .msg_iov = &part, .msg_iovlen = 1 };
	for (long done = 0; done < expected; done++) {
		socklen_t length = sizeof peer;
		long moved;
		CHECK(recvfrom(fd, bytes, PIECE, MSG_PEEK, &peer.any, &length) >= 0);
		if (done % 3 == 0) {
			length = sizeof peer;
			moved = recvfrom(fd, bytes, PIECE, 0, &peer.any, &length);
		} else if (done % 3 == 1) {
			message.msg_namelen = sizeof peer;
			moved = recvmsg(fd, &message, 0);
		} else {
			struct mmsghdr one = { .msg_hdr = message };
			one.msg_hdr.msg_namelen = sizeof peer;
			CHECK(recvmmsg(fd, &one, 1, 0, NULL) == 1);
			moved = one.msg_len;
		}
		CHECK(moved >= 0);
		note("udp.receive", fd, &peer, 0, moved);
	}
}

static void exchange_datagrams(enum form form)
{
	union address server, back;
	char bytes[PIECE];
	int receiver = bound(form, SOCK_DGRAM, &server), sender = made(form, SOCK_DGRAM);
	send_datagrams(sender, &server);
	receive_datagrams(receiver, 5);
	CHECK(connect(sender, &server.any, length_of(&server)) == 0);
	send_datagrams(sender, NULL);
	receive_datagrams(receiver, 7);
	/* And back, to a socket that is connected: read names no address. */
	socklen_t length = sizeof back;
	CHECK(getsockname(sender, &back.any, &length) == 0);
	CHECK(sendto(receiver, payload, 9, 0, &back.any, length_of(&back)) == 9);
	note("udp.send", receiver, &back, 1, 9);
	CHECK(read(sender, bytes, 0) == 0 && read(sender, bytes, PIECE) == 9);
	note("udp.receive", sender, NULL, 0, 9);
	close(sender);
	close(receiver);
}

/* Neither TCP nor UDP. */
static void do_other_things(void)
{
	char bytes[PIECE];
	int pair[2], streams[2];
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, streams) == 0);
	CHECK(send(pair[0], payload, 5, 0) == 5 && recv(pair[1], bytes, PIECE, 0) == 5);
	CHECK(write(streams[0], payload, 6) == 6 && read(streams[1], bytes, PIECE) == 6);
	struct sockaddr_un path = { .sun_family = AF_UNIX, .sun_path = "/nonexistent/socket" };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&path, sizeof path) == -1);
	close(fd);
	/* No address ends a connection. */
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	fd = made(IPV4, SOCK_STREAM);
	CHECK(connect(fd, &none, sizeof none) == 0);
	close(fd);
	for (int one = 0; one < 2; one++) {
		close(pair[one]);
		close(streams[one]);
	}
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	rounds = argc > 1 ? atol(argv[1]) : 3;
	pthread_t threads[FORMS];
	struct server servers[FORMS];
	union address addresses[FORMS], nobody[FORMS];
	/* Made before a tracer may attach, and used afterwards. */
	union address early;
	int early_listener = bound(IPV4, SOCK_STREAM, &early), early_client = made(IPV4, SOCK_STREAM);
	CHECK(connect(early_client, &early.any, length_of(&early)) == 0);
	int early_server = accept(early_listener, NULL, NULL);
	CHECK(early_server >= 0);
	int is_new = !check_wait;
	wait_for_go();
	if (is_new) {
		union address none = loopback(IPV4, 0);
		none.v4.sin_addr.s_addr = 0;
		note_ends("tcp.connect-request", &none, &early, 0);
		note("tcp.connect-established", early_client, NULL, 0, 0);
		note("tcp.accept-established", early_server, NULL, 0, 0);
	}
	for (enum form form = IPV4; form < FORMS; form++) {
		servers[form].listener = bound(form, SOCK_STREAM, &addresses[form]);
		servers[form].connections = rounds * CONNECTIONS;
		CHECK(pthread_create(&threads[form], NULL, serve, &servers[form]) == 0);
		/* A port that is taken, and on which nobody listens. */
		int fd = made(form, SOCK_STREAM);
		socklen_t length = sizeof nobody[form];
		nobody[form] = loopback(form, 0);
		CHECK(bind(fd, &nobody[form].any, length_of(&nobody[form])) == 0);
		CHECK(getsockname(fd, &nobody[form].any, &length) == 0);
	}
	for (long round = 0; round < rounds; round++) {
		for (enum form form = IPV4; form < FORMS; form++) {
			connect_in_all_ways(form, &addresses[form]);
			be_refused(form, &nobody[form]);
			exchange_datagrams(form);
		}
		do_other_things();
	}
	send_all(early_client, &early);
	CHECK(shutdown(early_client, SHUT_WR) == 0);
	socklen_t length = sizeof early;
	CHECK(getpeername(early_server, &early.any, &length) == 0);
	receive_all(early_server, &early);
	for (enum form form = IPV4; form < FORMS; form++)
		CHECK(pthread_join(threads[form], NULL) == 0);
	for (int at = 0; at < event_count; at++)
		printf("%s %ld %ld\n", events[at].key, events[at].calls, events[at].bytes);
	printf("OK\n");
	return 0;
}
