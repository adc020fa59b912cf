/*
 * The provider sysinfo: what DTrace's kernel counts for the whole system, as far as the traced processes do it by
 * calls. arg0 is by how much a count grows.
 */

sysinfo:::sysread
{
	this->at = "syscall::read:entry, syscall::pread64:entry";
	this->at = "syscall::readv:entry, syscall::preadv:entry, syscall::preadv2:entry";
	arg0 = 1;
}

sysinfo:::readch
/(int64_t)uregs[R_RAX] >= 0/
{
	this->at = "syscall::read:return, syscall::pread64:return";
	this->at = "syscall::readv:return, syscall::preadv:return, syscall::preadv2:return";
	arg0 = uregs[R_RAX];
}

sysinfo:::syswrite
{
	this->at = "syscall::write:entry, syscall::pwrite64:entry";
	this->at = "syscall::writev:entry, syscall::pwritev:entry, syscall::pwritev2:entry";
	arg0 = 1;
}

sysinfo:::writech
/(int64_t)uregs[R_RAX] >= 0/
{
	this->at = "syscall::write:return, syscall::pwrite64:return";
	this->at = "syscall::writev:return, syscall::pwritev:return, syscall::pwritev2:return";
	arg0 = uregs[R_RAX];
}

sysinfo:::sysexec
{
	this->at = "syscall::execve:entry, syscall::execveat:entry";
	arg0 = 1;
}

/* CLONE_VFORK, CLONE_THREAD */
sysinfo:::sysfork
/(int64_t)uregs[R_RAX] > 0/
{
	this->at = "syscall::fork:return";
	arg0 = 1;
}

sysinfo:::sysfork
/(int64_t)uregs[R_RAX] > 0 && (uregs[R_RDI] & 0x14000) == 0/
{
	this->at = "syscall::clone:return";
	arg0 = 1;
}

sysinfo:::sysfork
/(int64_t)uregs[R_RAX] > 0 && (*(uint64_t *)copyin(uregs[R_RDI], 8) & 0x14000) == 0/
{
	this->at = "syscall::clone3:return";
	arg0 = 1;
}

sysinfo:::sysvfork
/(int64_t)uregs[R_RAX] > 0/
{
	this->at = "syscall::vfork:return";
	arg0 = 1;
}

sysinfo:::sysvfork
/(int64_t)uregs[R_RAX] > 0 && (uregs[R_RDI] & 0x14000) == 0x4000/
{
	this->at = "syscall::clone:return";
	arg0 = 1;
}

sysinfo:::sysvfork
/(int64_t)uregs[R_RAX] > 0 && (*(uint64_t *)copyin(uregs[R_RDI], 8) & 0x14000) == 0x4000/
{
	this->at = "syscall::clone3:return";
	arg0 = 1;
}

sysinfo:::sema
{
	this->at = "syscall::semop:entry, syscall::semtimedop:entry";
	arg0 = 1;
}

sysinfo:::msg
{
	this->at = "syscall::msgsnd:entry, syscall::msgrcv:entry";
	arg0 = 1;
}
