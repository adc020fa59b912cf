/*
 * The provider udp: the datagrams that a thread sends and receives by system calls. __socket(descriptor, part, address)
 * is as in tcp.d; 17 is UDP. The other end is the address that the call names, else that to which the socket is
 * connected. After a call the registers still hold its arguments, except rax, rcx and r11.
 */

udp:::
{
	this->other = this->source == 2 ? this->target : this->source;
	args[1]->cs_cid = (uint64_t)__socket(this->fd, 5, 0);
	args[1]->cs_pid = pid;
	args[2]->ip_ver = (uint8_t)__socket(this->fd, 1, this->given);
	args[2]->ip_plength = (uint32_t)this->bytes;
	args[2]->ip_saddr = __socket_address(this->fd, this->source, this->given);
	args[2]->ip_daddr = __socket_address(this->fd, this->target, this->given);
	args[3]->udps_lport = (uint16_t)__socket(this->fd, 2, 0);
	args[3]->udps_rport = (uint16_t)__socket(this->fd, this->other, this->given);
	args[3]->udps_laddr = __socket_address(this->fd, 2, 0);
	args[3]->udps_raddr = __socket_address(this->fd, this->other, this->given);
	args[4]->udp_sport = (uint16_t)__socket(this->fd, this->source, this->given);
	args[4]->udp_dport = (uint16_t)__socket(this->fd, this->target, this->given);
	args[4]->udp_length = (uint16_t)this->bytes;
}

/* A call may send an empty datagram. */
syscall::write:return, syscall::writev:return
{
	this->is_moved = (int64_t)uregs[R_RAX] >= 0;
	this->fd = uregs[R_RDI];
	this->given = 0;
	this->bytes = uregs[R_RAX];
}

syscall::sendfile:return
{
	this->is_moved = (int64_t)uregs[R_RAX] > 0;
	this->fd = uregs[R_RDI];
	this->given = 0;
	this->bytes = uregs[R_RAX];
}

syscall::splice:return
{
	this->is_moved = (int64_t)uregs[R_RAX] > 0;
	this->fd = uregs[R_RDX];
	this->given = 0;
	this->bytes = uregs[R_RAX];
}

syscall::sendto:return
{
	this->is_moved = (int64_t)uregs[R_RAX] >= 0;
	this->fd = uregs[R_RDI];
	this->given = uregs[R_R8];
	this->bytes = uregs[R_RAX];
}

/* msg_name is the first member of a struct msghdr, and that of a struct mmsghdr. */
syscall::sendmsg:return
{
	this->is_moved = (int64_t)uregs[R_RAX] >= 0;
	this->fd = uregs[R_RDI];
	this->given = *(uint64_t *)copyin(uregs[R_RSI], 8);
	this->bytes = uregs[R_RAX];
}

syscall::sendmmsg:return
{
	this->is_moved = (int64_t)uregs[R_RAX] > 0;
	this->fd = uregs[R_RDI];
	this->given = *(uint64_t *)copyin(uregs[R_RSI], 8);
	this->bytes = __message_bytes(uregs[R_RSI], uregs[R_RAX]);
}

udp:::send
/this->is_moved && __socket(this->fd, 0, 0) == 17/
{
	this->source = 2;
	this->target = 4;
}

/* A call that asks for no bytes receives no datagram. */
syscall::read:return, syscall::readv:return
{
	this->is_moved = (int64_t)uregs[R_RAX] > 0 || (uregs[R_RAX] == 0 && uregs[R_RDX] != 0);
	this->fd = uregs[R_RDI];
	this->given = 0;
	this->bytes = uregs[R_RAX];
}

/* MSG_PEEK: the datagram is received again. MSG_ERRQUEUE: it was sent. */
syscall::recvfrom:return
{
	this->is_moved = (int64_t)uregs[R_RAX] >= 0 && (uregs[R_R10] & 0x2002) == 0;
	this->fd = uregs[R_RDI];
	this->given = uregs[R_R8];
	this->bytes = uregs[R_RAX];
}

syscall::recvmsg:return
{
	this->is_moved = (int64_t)uregs[R_RAX] >= 0 && (uregs[R_RDX] & 0x2002) == 0;
	this->fd = uregs[R_RDI];
	this->given = *(uint64_t *)copyin(uregs[R_RSI], 8);
	this->bytes = uregs[R_RAX];
}

syscall::recvmmsg:return
{
	this->is_moved = (int64_t)uregs[R_RAX] > 0 && (uregs[R_R10] & 0x2002) == 0;
	this->fd = uregs[R_RDI];
	this->given = *(uint64_t *)copyin(uregs[R_RSI], 8);
	this->bytes = __message_bytes(uregs[R_RSI], uregs[R_RAX]);
}

udp:::receive
/this->is_moved && __socket(this->fd, 0, 0) == 17/
{
	this->source = 4;
	this->target = 2;
}
