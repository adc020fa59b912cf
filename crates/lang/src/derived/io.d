/*
 * The provider io: what a thread reads, writes and synchronizes by system calls, on regular files and block devices.
 * After a call the registers still hold its arguments, except rax, rcx and r11.
 */

inline int B_ERROR = 0x04;
inline int B_READ = 0x40;
inline int B_WRITE = 0x100;

syscall::read:, syscall::pread64:
{
	this->fd = uregs[R_RDI];
	this->bytes = uregs[R_RDX];
	this->flags = B_READ;
	this->address = uregs[R_RSI];
}

syscall::write:, syscall::pwrite64:
{
	this->fd = uregs[R_RDI];
	this->bytes = uregs[R_RDX];
	this->flags = B_WRITE;
	this->address = uregs[R_RSI];
}

syscall::readv:, syscall::preadv:, syscall::preadv2:
{
	this->fd = uregs[R_RDI];
	this->bytes = __vector_bytes(uregs[R_RSI], uregs[R_RDX]);
	this->flags = B_READ;
	this->address = 0;
}

syscall::writev:, syscall::pwritev:, syscall::pwritev2:
{
	this->fd = uregs[R_RDI];
	this->bytes = __vector_bytes(uregs[R_RSI], uregs[R_RDX]);
	this->flags = B_WRITE;
	this->address = 0;
}

/* How much is written to the disk is not known. */
syscall::fsync:, syscall::fdatasync:, syscall::sync_file_range:
{
	this->fd = uregs[R_RDI];
	this->bytes = 0;
	this->flags = B_WRITE;
	this->address = 0;
}

/* Two files: both are read or written by one call, and each has its own probe. */
syscall::sendfile:
{
	this->fd = uregs[R_RSI];
	this->bytes = uregs[R_R10];
	this->flags = B_READ;
	this->address = 0;
}

syscall::sendfile:
{
	this->fd = uregs[R_RDI];
	this->bytes = uregs[R_R10];
	this->flags = B_WRITE;
	this->address = 0;
}

syscall::copy_file_range:
{
	this->fd = uregs[R_RDI];
	this->bytes = uregs[R_R8];
	this->flags = B_READ;
	this->address = 0;
}

syscall::copy_file_range:
{
	this->fd = uregs[R_RDX];
	this->bytes = uregs[R_R8];
	this->flags = B_WRITE;
	this->address = 0;
}

io:::start, io:::wait-start
/__file_status(this->fd, 0)/
{
	probename = "entry";
	arg0 = uregs[R_RSP];
	args[0]->b_flags = (int)this->flags;
	args[0]->b_bcount = (size_t)this->bytes;
	args[0]->b_bufsize = (size_t)this->bytes;
	args[0]->b_resid = (size_t)this->bytes;
	args[0]->b_error = (int)0;
	args[0]->b_addr = (uintptr_t)this->address;
	args[0]->b_edev = (uint64_t)__file_status(this->fd, 1);
	args[1]->dev_major = (int)(__file_status(this->fd, 1) >> 32);
	args[1]->dev_minor = (int)__file_status(this->fd, 1);
	args[1]->dev_name = __device_name(__file_status(this->fd, 1));
	args[1]->dev_statname = __device_name(__file_status(this->fd, 1));
	args[2]->fi_pathname = fds[this->fd].fi_pathname;
	args[2]->fi_name = fds[this->fd].fi_name;
	args[2]->fi_dirname = fds[this->fd].fi_dirname;
	args[2]->fi_fs = fds[this->fd].fi_fs;
	args[2]->fi_mount = fds[this->fd].fi_mount;
}

io:::done, io:::wait-done
/__file_status(this->fd, 0)/
{
	probename = "return";
	this->moved = (int64_t)uregs[R_RAX] > 0 ? (int64_t)uregs[R_RAX] : 0;
	arg0 = uregs[R_RSP];
	args[0]->b_flags = (int)(this->flags | (errno != 0 ? B_ERROR : 0));
	args[0]->b_bcount = (size_t)this->bytes;
	args[0]->b_bufsize = (size_t)this->bytes;
	args[0]->b_resid = (size_t)((int64_t)this->bytes - this->moved);
	args[0]->b_error = errno;
	args[0]->b_addr = (uintptr_t)this->address;
	args[0]->b_edev = (uint64_t)__file_status(this->fd, 1);
	args[1]->dev_major = (int)(__file_status(this->fd, 1) >> 32);
	args[1]->dev_minor = (int)__file_status(this->fd, 1);
	args[1]->dev_name = __device_name(__file_status(this->fd, 1));
	args[1]->dev_statname = __device_name(__file_status(this->fd, 1));
	args[2]->fi_pathname = fds[this->fd].fi_pathname;
	args[2]->fi_name = fds[this->fd].fi_name;
	args[2]->fi_dirname = fds[this->fd].fi_dirname;
	args[2]->fi_fs = fds[this->fd].fi_fs;
	args[2]->fi_mount = fds[this->fd].fi_mount;
}
