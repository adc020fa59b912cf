/*
 * The provider tcp: what a thread does with connections of TCP by system calls. The kernel says at each call what the
 * descriptor is: __socket(descriptor, part, address). Part 0: the protocol, 6 is TCP; 1: the version of IP; 2, 3, 4: the
 * port of its own end, of the other end, of the address that the call names; 5: a number of the socket's own; 6: the port
 * of the other end during a connection. After a call the registers still hold its arguments, except rax, rcx and r11.
 */

/* Whether connect has begun a connection and not ended, by the socket's number. */
int begun[int64_t];

/* Whether there was ever one: without one, no call needs to be asked about. */
int has_begun;

syscall::connect:return
/(errno == EINPROGRESS || errno == EINTR) && __socket(uregs[R_RDI], 0, 0) == 6/
{
	has_begun = 1;
	begun[__socket(uregs[R_RDI], 5, 0)] = 1;
}

/* For all probes. this->source and this->target are ends: 2 is the socket's own, others are the other end. */
tcp:::
{
	this->other = this->source == 2 ? this->target : this->source;
	args[1]->cs_cid = (uint64_t)__socket(this->fd, 5, 0);
	args[1]->cs_pid = pid;
	args[2]->ip_ver = (uint8_t)__socket(this->fd, 1, this->given);
	args[2]->ip_plength = (uint32_t)this->bytes;
	args[2]->ip_saddr = __socket_address(this->fd, this->source, this->given);
	args[2]->ip_daddr = __socket_address(this->fd, this->target, this->given);
	args[3]->tcps_lport = (uint16_t)__socket(this->fd, 2, 0);
	args[3]->tcps_rport = (uint16_t)__socket(this->fd, this->other, this->given);
	args[3]->tcps_laddr = __socket_address(this->fd, 2, 0);
	args[3]->tcps_raddr = __socket_address(this->fd, this->other, this->given);
	args[4]->tcp_sport = (uint16_t)__socket(this->fd, this->source, this->given);
	args[4]->tcp_dport = (uint16_t)__socket(this->fd, this->target, this->given);
	args[4]->tcp_offset = (uint8_t)0;
}

/* A connection that has not begun yet: connect is called again to ask for its end. */
tcp:::connect-request
/__socket(this->fd, 0, 0) == 6 && __socket(this->fd, 4, this->given) != 0 && __socket(this->fd, 6, 0) == 0 &&
    begun[__socket(this->fd, 5, 0)] == 0/
{
	this->at = "syscall::connect:entry";
	this->fd = uregs[R_RDI];
	this->given = uregs[R_RSI];
	this->bytes = 0;
	this->source = 2;
	this->target = 4;
}

/* The other end answers: it is the source. */
tcp:::connect-established
/errno == 0 && __socket(this->fd, 0, 0) == 6 && __socket(this->fd, 3, this->given) != 0/
{
	this->at = "syscall::connect:return";
	this->fd = uregs[R_RDI];
	this->given = uregs[R_RSI];
	this->bytes = 0;
	this->source = 3;
	this->target = 2;
}

/* SOL_SOCKET, SO_ERROR: the program asks how its connect has ended. */
tcp:::connect-established
/errno == 0 && uregs[R_RSI] == 1 && uregs[R_RDX] == 4 && __socket(this->fd, 0, 0) == 6 &&
    begun[__socket(this->fd, 5, 0)] != 0 && *(int *)copyin(uregs[R_R10], 4) == 0 && __socket(this->fd, 6, 0) != 0/
{
	this->at = "syscall::getsockopt:return";
	this->fd = uregs[R_RDI];
	this->given = 0;
	this->bytes = 0;
	this->source = 3;
	this->target = 2;
}

/* The first bytes tell it, too. */
tcp:::connect-established
/has_begun && (int64_t)uregs[R_RAX] > 0 && __socket(this->fd, 0, 0) == 6 &&
    begun[__socket(this->fd, 5, 0)] != 0/
{
	this->at = "syscall::write:return, syscall::writev:return, syscall::sendto:return, syscall::sendmsg:return";
	this->at = "syscall::sendmmsg:return, syscall::sendfile:return";
	this->at = "syscall::read:return, syscall::readv:return, syscall::recvfrom:return, syscall::recvmsg:return";
	this->at = "syscall::recvmmsg:return";
	this->fd = uregs[R_RDI];
	this->given = 0;
	this->bytes = 0;
	this->source = 3;
	this->target = 2;
}

tcp:::connect-refused
/errno == ECONNREFUSED && __socket(this->fd, 0, 0) == 6/
{
	this->at = "syscall::connect:return";
	this->fd = uregs[R_RDI];
	this->given = uregs[R_RSI];
	this->bytes = 0;
	this->source = 4;
	this->target = 2;
}

tcp:::connect-refused
/errno == 0 && uregs[R_RSI] == 1 && uregs[R_RDX] == 4 && __socket(this->fd, 0, 0) == 6 &&
    begun[__socket(this->fd, 5, 0)] != 0 && *(int *)copyin(uregs[R_R10], 4) == ECONNREFUSED/
{
	this->at = "syscall::getsockopt:return";
	this->fd = uregs[R_RDI];
	this->given = 0;
	this->bytes = 0;
	this->source = 3;
	this->target = 2;
}

tcp:::accept-established
/(int64_t)uregs[R_RAX] >= 0 && __socket(this->fd, 0, 0) == 6/
{
	this->at = "syscall::accept:return, syscall::accept4:return";
	this->fd = uregs[R_RAX];
	this->given = uregs[R_RSI];
	this->bytes = 0;
	this->source = 3;
	this->target = 2;
}

syscall::write:return, syscall::writev:return, syscall::sendto:return, syscall::sendmsg:return, syscall::sendfile:return
{
	this->fd = uregs[R_RDI];
	this->bytes = uregs[R_RAX];
}

syscall::sendmmsg:return
{
	this->fd = uregs[R_RDI];
	this->bytes = __message_bytes(uregs[R_RSI], uregs[R_RAX]);
}

syscall::splice:return
{
	this->fd = uregs[R_RDX];
	this->bytes = uregs[R_RAX];
}

tcp:::send
/(int64_t)uregs[R_RAX] > 0 && __socket(this->fd, 0, 0) == 6 && this->bytes > 0/
{
	this->given = 0;
	this->source = 2;
	this->target = 3;
}

syscall::read:return, syscall::readv:return, syscall::splice:return
{
	this->fd = uregs[R_RDI];
	this->flags = 0;
	this->bytes = uregs[R_RAX];
}

syscall::recvfrom:return
{
	this->fd = uregs[R_RDI];
	this->flags = uregs[R_R10];
	this->bytes = uregs[R_RAX];
}

syscall::recvmsg:return
{
	this->fd = uregs[R_RDI];
	this->flags = uregs[R_RDX];
	this->bytes = uregs[R_RAX];
}

syscall::recvmmsg:return
{
	this->fd = uregs[R_RDI];
	this->flags = uregs[R_R10];
	this->bytes = __message_bytes(uregs[R_RSI], uregs[R_RAX]);
}

/* MSG_PEEK: the bytes are received again. MSG_ERRQUEUE: they were sent. */
tcp:::receive
/(int64_t)uregs[R_RAX] > 0 && (this->flags & 0x2002) == 0 && __socket(this->fd, 0, 0) == 6 && this->bytes > 0/
{
	this->given = 0;
	this->source = 3;
	this->target = 2;
}

/* A connection that has begun has now ended its beginning, or is given up. */
syscall::connect:return
/errno != EINPROGRESS && errno != EINTR && errno != EALREADY && __socket(uregs[R_RDI], 0, 0) == 6 &&
    begun[__socket(uregs[R_RDI], 5, 0)] != 0/
{
	begun[__socket(uregs[R_RDI], 5, 0)] = 0;
}

syscall::getsockopt:return
/errno == 0 && uregs[R_RSI] == 1 && uregs[R_RDX] == 4 && __socket(uregs[R_RDI], 0, 0) == 6 &&
    begun[__socket(uregs[R_RDI], 5, 0)] != 0 &&
    (*(int *)copyin(uregs[R_R10], 4) != 0 || __socket(uregs[R_RDI], 6, 0) != 0)/
{
	begun[__socket(uregs[R_RDI], 5, 0)] = 0;
}

syscall::write:return, syscall::writev:return, syscall::sendto:return, syscall::sendmsg:return,
syscall::sendmmsg:return, syscall::sendfile:return, syscall::read:return, syscall::readv:return,
syscall::recvfrom:return, syscall::recvmsg:return, syscall::recvmmsg:return
/has_begun && (int64_t)uregs[R_RAX] > 0 && __socket(uregs[R_RDI], 0, 0) == 6 &&
    begun[__socket(uregs[R_RDI], 5, 0)] != 0/
{
	begun[__socket(uregs[R_RDI], 5, 0)] = 0;
}

syscall::close:entry
/has_begun && __socket(uregs[R_RDI], 0, 0) == 6 && begun[__socket(uregs[R_RDI], 5, 0)] != 0/
{
	begun[__socket(uregs[R_RDI], 5, 0)] = 0;
}
