/* Makes each kind of system call, in the same way in every run, between two calls that mark the beginning and the end.
 * Its argument is a folder of its own. */
#pragma GCC diagnostic ignored "-Wunused-result"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/if_alg.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

static void files(void)
{
	char buffer[128];
	struct stat status;
	struct statx extended;
	int fd = open("file", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
	syscall(SYS_write, fd, "a \"line\"\n\t\\ \1\0012\377 and more than thirty-two bytes", 50);
	pread(fd, buffer, 5, 2);
	pwrite(fd, "xy", 2, 1);
	lseek(fd, -3, SEEK_END);
	read(fd, buffer, sizeof buffer);
	read(fd, buffer, sizeof buffer);
	struct iovec parts[2] = { { "one", 3 }, { "two and something that is longer than that", 42 } };
	writev(fd, parts, 2);
	lseek(fd, 0, SEEK_SET);
	struct iovec into[2] = { { buffer, 4 }, { buffer + 8, 16 } };
	readv(fd, into, 2);
	fstat(fd, &status);
	stat("file", &status);
	lstat("/dev/null", &status);
	stat("missing", &status);
	statx(AT_FDCWD, "file", AT_SYMLINK_NOFOLLOW, STATX_SIZE | STATX_MODE, &extended);
	ftruncate(fd, 10);
	fallocate(fd, 0, 0, 4096);
	flock(fd, LOCK_EX | LOCK_NB);
	fsync(fd);
	fcntl(fd, F_GETFD);
	fcntl(fd, F_SETFD, 0);
	fcntl(fd, F_GETFL);
	open("/no/such/file", O_DIRECT | 0100000 | O_NOFOLLOW | O_ASYNC);
	fcntl(fd, F_SETFL, O_APPEND);
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 20);
	close(copy);
	dup2(fd, 21);
	dup3(fd, 22, O_CLOEXEC);
	close(21);
	close(22);
	close(fd);
	close(fd);
	open("missing", O_RDONLY | O_NOFOLLOW);
	open("file", O_WRONLY | O_APPEND | O_NONBLOCK);
	openat(77, "file", O_RDONLY | O_DIRECTORY);
	syscall(SYS_openat, AT_FDCWD, NULL, O_RDONLY);
	syscall(SYS_openat, AT_FDCWD, 16L, O_RDONLY);
	syscall(SYS_write, 1000, 16L, 5L);
	access("file", R_OK | W_OK);
	access("file", F_OK);
	faccessat(AT_FDCWD, "file", X_OK, AT_EACCESS);
	umask(027);
	mkdir("folder", 0755);
	rename("file", "folder/renamed");
	symlink("folder/renamed", "link");
	readlink("link", buffer, sizeof buffer);
	link("folder/renamed", "other");
	chmod("other", 04755);
	fchmodat(AT_FDCWD, "other", 0600, 0);
	chown("other", -1, -1);
	truncate("other", 7);
	struct timespec times[2] = { { 0, UTIME_NOW }, { 0, UTIME_OMIT } };
	utimensat(AT_FDCWD, "other", times, 0);
	utimensat(AT_FDCWD, "other", NULL, AT_SYMLINK_NOFOLLOW);
	DIR *folder = opendir("folder");
	while (readdir(folder))
		;
	closedir(folder);
	getcwd(buffer, sizeof buffer);
	chdir("folder");
	chdir("..");
	unlink("other");
	unlink("link");
	unlink("folder/renamed");
	rmdir("folder");
	unlinkat(AT_FDCWD, "missing", AT_REMOVEDIR);
}

static void memory(void)
{
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(page, 4096, MADV_DONTNEED);
	mprotect(page, 4096, PROT_NONE);
	mprotect(page + 1, 4096, PROT_READ | PROT_EXEC);
	page = mremap(page, 8192, 4096, MREMAP_MAYMOVE);
	msync(page, 4096, MS_SYNC);
	munmap(page, 8192);
	int fd = memfd_create("name", MFD_CLOEXEC);
	ftruncate(fd, 8192);
	page = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 4096);
	munmap(page, 4096);
	close(fd);
}

static void waiting(void)
{
	char byte;
	int ends[2], value = 1;
	pipe2(ends, O_NONBLOCK | O_CLOEXEC);
	read(ends[0], &byte, 1);
	struct pollfd polled[2] = { { ends[0], POLLIN, 0 }, { ends[1], POLLOUT | POLLERR, 0 } };
	poll(polled, 2, 0);
	poll(polled, 1, 0);
	struct timespec none = { 0, 1000 };
	ppoll(polled, 1, &none, NULL);
	int all = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { EPOLLIN | EPOLLET, { .u64 = 7 } }, events[4];
	epoll_ctl(all, EPOLL_CTL_ADD, ends[0], &event);
	epoll_wait(all, events, 4, 0);
	write(ends[1], "z", 1);
	epoll_wait(all, events, 4, -1);
	epoll_ctl(all, EPOLL_CTL_DEL, ends[0], NULL);
	ioctl(ends[0], FIONREAD, &value);
	ioctl(ends[0], FIONBIO, &value);
	ioctl(ends[0], TIOCGWINSZ, &value);
	close(ends[0]);
	close(ends[1]);
	close(all);
	int counter = eventfd(3, EFD_NONBLOCK);
	close(counter);
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	struct itimerspec when = { { 0, 0 }, { 100, 5 } };
	timerfd_settime(timer, 0, &when, NULL);
	close(timer);
	int watch = inotify_init1(IN_CLOEXEC);
	inotify_add_watch(watch, ".", IN_CREATE | IN_DELETE);
	close(watch);
	nanosleep(&none, NULL);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &none, NULL);
	struct itimerval alarm = { { 0, 0 }, { 0, 0 } };
	setitimer(ITIMER_VIRTUAL, &alarm, NULL);
	syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, 1);
	syscall(SYS_futex, &value, FUTEX_WAIT, 77, &none);
	syscall(SYS_futex, &value, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 77, NULL, NULL, -1);
}

/* Addresses that the kernel refuses, because the socket is of another family. */
static void links(int fd)
{
	struct sockaddr_ll link = { AF_PACKET, htons(ETH_P_IP), 1, 1, PACKET_OTHERHOST, 6, { 1, 0, 255, 4, 5, 6, 7, 8 } };
	connect(fd, (struct sockaddr *)&link, sizeof link);
	connect(fd, (struct sockaddr *)&link, 18);
	link = (struct sockaddr_ll){ AF_PACKET, htons(0x1234), 987654, 0x1234, 99, 20, "address" };
	connect(fd, (struct sockaddr *)&link, sizeof link);
	link = (struct sockaddr_ll){ AF_PACKET, 0, 0, 65535, PACKET_HOST, 0, "" };
	connect(fd, (struct sockaddr *)&link, sizeof link);
	struct sockaddr_alg algorithm = { .salg_family = AF_ALG, .salg_type = "hash", .salg_name = "sha256" };
	connect(fd, (struct sockaddr *)&algorithm, sizeof algorithm);
	memset(algorithm.salg_type, 'a', sizeof algorithm.salg_type);
	algorithm.salg_feat = 0x1000;
	algorithm.salg_mask = 0x1234;
	connect(fd, (struct sockaddr *)&algorithm, 28);
	connect(fd, (struct sockaddr *)&algorithm, 24);
	close(socket(AF_ALG, SOCK_STREAM, 0));
	socket(AF_PACKET, SOCK_STREAM, htons(ETH_P_IP));
	socket(AF_PACKET, SOCK_STREAM, 0);
}

static void sockets(void)
{
	char buffer[64];
	int pair[2], on = 1;
	socklen_t bytes = sizeof on;
	socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
	sendto(pair[0], "message", 7, MSG_NOSIGNAL, NULL, 0);
	recvfrom(pair[1], buffer, sizeof buffer, MSG_DONTWAIT, NULL, NULL);
	recvfrom(pair[1], buffer, sizeof buffer, MSG_DONTWAIT | MSG_PEEK, NULL, NULL);
	shutdown(pair[0], SHUT_WR);
	close(pair[0]);
	close(pair[1]);
	struct sockaddr_un local = { AF_UNIX, "socket" };
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	bind(fd, (struct sockaddr *)&local, 9);
	close(fd);
	unlink("socket");
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	static const unsigned short families[][8] = {
		{AF_VSOCK, 0, 1234, 0, 2, 0, 1}, {AF_VSOCK, 0, 0xffff, 0xffff, 0xffff, 0xffff}, {AF_VSOCK, 0, 0, 0, 4000},
		{AF_NETLINK, 7, 5, 0, 6}, {AF_NETLINK, 0, 5}, {99, 0x6261},
	};
	for (int i = 0; i < 6; i++)
		connect(fd, (const struct sockaddr *)families[i], sizeof families[i]);
	connect(fd, (struct sockaddr *)&local, sizeof local);
	links(fd);
	close(fd);
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } }, peer;
	socklen_t length = sizeof address;
	int server = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
	setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	setsockopt(server, SOL_TCP, TCP_NODELAY, &on, sizeof on);
	getsockopt(server, SOL_SOCKET, SO_ERROR, &on, &bytes);
	bind(server, (struct sockaddr *)&address, sizeof address);
	listen(server, 5);
	getsockname(server, (struct sockaddr *)&address, &length);
	int client = socket(AF_INET, SOCK_STREAM, IPPROTO_IP);
	connect(client, (struct sockaddr *)&address, sizeof address);
	length = 100;
	int accepted = accept4(server, (struct sockaddr *)&peer, &length, SOCK_CLOEXEC);
	getpeername(client, (struct sockaddr *)&peer, &length);
	close(accept(server + 50, NULL, NULL));
	close(accepted);
	close(client);
	close(server);
	struct sockaddr_in6 wide = { .sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	fd = socket(AF_INET6, SOCK_DGRAM, IPPROTO_UDP);
	sendto(fd, "", 0, 0, (struct sockaddr *)&wide, sizeof wide);
	close(fd);
}

/* Several messages in one call, of which the first may have a name, and all that it leads to. */
static void many_messages(void)
{
	char bytes[4][50], control[CMSG_SPACE(sizeof(int))] = "";
	int first = socket(AF_INET, SOCK_DGRAM, 0), pair[2];
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } }, peers[4];
	socklen_t length = sizeof address;
	bind(first, (struct sockaddr *)&address, sizeof address);
	getsockname(first, (struct sockaddr *)&address, &length);
	struct iovec parts[2] = { { "hello", 5 }, { " world", 6 } }, large = { "more than thirty-two bytes of text", 34 };
	struct mmsghdr sent[3] = {
		{ { .msg_name = &address, .msg_namelen = sizeof address, .msg_iov = parts, .msg_iovlen = 2 }, 0 },
		{ { .msg_name = &address, .msg_namelen = sizeof address, .msg_iov = &large, .msg_iovlen = 1 }, 0 },
		{ { .msg_iov = parts, .msg_iovlen = 1 }, 0 },
	};
	sendmmsg(first, sent, 2, 0);
	sendmmsg(first, sent, 3, MSG_DONTWAIT);
	sendmmsg(first, sent + 2, 1, 0);
	sendmmsg(99, sent, 3, 0);
	sendmmsg(first, sent, 0, 0);
	sendmmsg(first, (struct mmsghdr *)8, 2, 0);
	struct iovec room[4];
	struct mmsghdr received[4];
	for (int i = 0; i < 4; i++) {
		room[i] = (struct iovec){ bytes[i], sizeof bytes[i] };
		received[i].msg_hdr = (struct msghdr){
			.msg_name = &peers[i], .msg_namelen = 16 + i, .msg_iov = &room[i], .msg_iovlen = 1
		};
	}
	struct timespec wait = { 100, 5 };
	recvmmsg(first, received, 2, 0, &wait);
	recvmmsg(first, received, 4, MSG_DONTWAIT, NULL);
	recvmmsg(first, received, 4, MSG_DONTWAIT, NULL);
	recvmmsg(first, received, 0, MSG_DONTWAIT, NULL);
	wait = (struct timespec){ 1, 0 };
	recvmmsg(99, received, 2, 0, &wait);
	recvmmsg(first, (struct mmsghdr *)8, 2, MSG_DONTWAIT, NULL);
	socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
	sent[1].msg_hdr = (struct msghdr){
		.msg_iov = parts, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
	};
	struct cmsghdr *rights = CMSG_FIRSTHDR(&sent[1].msg_hdr);
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(rights), &first, sizeof first);
	sendmmsg(pair[0], sent + 1, 2, 0);
	received[0].msg_hdr.msg_name = received[1].msg_hdr.msg_name = NULL;
	received[0].msg_hdr.msg_control = control;
	received[0].msg_hdr.msg_controllen = sizeof control;
	recvmmsg(pair[1], received, 2, 0, NULL);
	close(*(int *)CMSG_DATA(rights));
	close(pair[0]);
	close(pair[1]);
	close(first);
}

/* The descriptors have the same numbers in each run. */
static void messages(void)
{
	char bytes[50], control[CMSG_SPACE(2 * sizeof(int))] = "";
	int first = socket(AF_INET, SOCK_DGRAM, 0), second = socket(AF_INET, SOCK_DGRAM, 0), pair[2], pipes[2];
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } }, peer;
	socklen_t length = sizeof address;
	bind(first, (struct sockaddr *)&address, sizeof address);
	bind(second, (struct sockaddr *)&address, sizeof address);
	getsockname(first, (struct sockaddr *)&address, &length);
	struct iovec parts[2] = { { "hello", 5 }, { " world", 6 } }, room = { bytes, sizeof bytes };
	struct msghdr sent = { .msg_name = &address, .msg_namelen = sizeof address, .msg_iov = parts, .msg_iovlen = 2 };
	struct msghdr received = { .msg_name = &peer, .msg_namelen = 100, .msg_iov = &room, .msg_iovlen = 1 };
	sendmsg(second, &sent, MSG_DONTWAIT);
	sendmsg(second, &sent, 0);
	recvmsg(first, &received, 0);
	received.msg_name = NULL;
	received.msg_namelen = 0;
	recvmsg(first, &received, MSG_TRUNC);
	recvmsg(first, &received, MSG_DONTWAIT);
	sendmsg(99, &sent, 0);
	sendmsg(99, (struct msghdr *)8, 0);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	sent = (struct msghdr){ .msg_iov = parts, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct cmsghdr *rights = CMSG_FIRSTHDR(&sent);
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(2 * sizeof(int));
	memcpy(CMSG_DATA(rights), (int[]){ first, second }, 2 * sizeof(int));
	sendmsg(pair[0], &sent, 0);
	sent.msg_iov = &room;
	recvmsg(pair[1], &sent, 0);
	for (int one = 0; one < 2; one++)
		close(((int *)CMSG_DATA(rights))[one]);
	/* Sets of descriptors. */
	struct timespec moment = { 0, 1000 }, second_long = { 1, 0 };
	struct timeval wait = { 0, 100 };
	sigset_t mask;
	fd_set in, out;
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	if (pipe(pipes) != 0)
		return;
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(pipes[0], &in);
	FD_SET(pipes[1], &out);
	FD_SET(pair[0], &out);
	pselect(pipes[1] + 1, &in, &out, NULL, &second_long, NULL);
	FD_SET(pipes[0], &in);
	pselect(pipes[0] + 1, &in, NULL, NULL, &moment, &mask);
	FD_SET(pipes[0], &in);
	syscall(SYS_select, pipes[0] + 1, &in, NULL, NULL, &wait);
	syscall(SYS_select, pipes[1] + 1, NULL, &out, NULL, NULL);
	syscall(SYS_select, -1, &in, NULL, NULL, NULL);
	close(pipes[0]);
	close(pipes[1]);
	close(pair[0]);
	close(pair[1]);
	close(first);
	close(second);
}

static void handle(int signal)
{
	(void)signal;
	getppid();
}

static void processes(void)
{
	struct rlimit limit;
	struct rusage usage;
	struct utsname name;
	struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART }, old;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGCHLD);
	action.sa_mask = set;
	sigaction(SIGUSR1, &action, &old);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigprocmask(SIG_SETMASK, NULL, &set);
	sigpending(&set);
	kill(getpid(), SIGUSR1);
	kill(getpid(), 0);
	kill(-1000000, SIGTERM);
	getrlimit(RLIMIT_NOFILE, &limit);
	getrlimit(RLIMIT_CPU, &limit);
	limit.rlim_cur = 8192;
	setrlimit(RLIMIT_CORE, &limit);
	uname(&name);
	getrusage(RUSAGE_CHILDREN, &usage);
	getpriority(PRIO_PROCESS, 0);
	sched_yield();
	getuid();
	getpgid(0);
	setpgid(0, 77777777);
	syscall(SYS_gettid);
	execve("/no/such/program", (char *[]){ "first", "second \"word\"", NULL }, (char *[]){ "A=1", NULL });
	int status;
	pid_t child = fork();
	if (!child)
		_exit(7);
	wait4(child, &status, 0, NULL);
	wait4(-1, &status, WNOHANG | __WALL, NULL);
	child = fork();
	if (!child)
		_exit(8);
	wait4(child, &status, 0, &usage);
	wait4(-1, &status, WNOHANG, &usage);
	syscall(500, 1L, 2L, 3L, 4L, 5L, 6L);
}

int main(int count, char **arguments)
{
	if (count != 2 || chdir(arguments[1]) != 0)
		return 1;
	access("/marker/begin", F_OK);
	files();
	memory();
	waiting();
	sockets();
	messages();
	many_messages();
	processes();
	access("/marker/end", F_OK);
	return 0;
}
