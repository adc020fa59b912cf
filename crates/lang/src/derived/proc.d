/*
 * The provider proc: processes, threads, programs and signals, as far as the traced processes make them by calls.
 * After a call the registers still hold its arguments, except rax, rcx and r11.
 */

/* Whether exec-success has fired. Each program has variables of its own. */
int begun;

/* A child: its number is the result. After vfork the parent continues when the child has ended or executed. */
proc:::create
/(int64_t)uregs[R_RAX] > 0/
{
	this->at = "syscall::fork:return, syscall::vfork:return";
	args[0]->pr_pid = (int)uregs[R_RAX];
	args[0]->pr_ppid = pid;
	args[0]->pr_uid = uid;
	args[0]->pr_gid = gid;
	args[0]->pr_fname = execname;
	args[0]->pr_psargs = curpsinfo->pr_psargs;
}

/* CLONE_THREAD, CLONE_PARENT */
proc:::create
/(int64_t)uregs[R_RAX] > 0 && (uregs[R_RDI] & 0x10000) == 0/
{
	this->at = "syscall::clone:return";
	args[0]->pr_pid = (int)uregs[R_RAX];
	args[0]->pr_ppid = (uregs[R_RDI] & 0x8000) != 0 ? ppid : pid;
	args[0]->pr_uid = uid;
	args[0]->pr_gid = gid;
	args[0]->pr_fname = execname;
	args[0]->pr_psargs = curpsinfo->pr_psargs;
}

/* The flags are the first word of struct clone_args. */
proc:::create
/(int64_t)uregs[R_RAX] > 0 && (*(uint64_t *)copyin(uregs[R_RDI], 8) & 0x10000) == 0/
{
	this->at = "syscall::clone3:return";
	args[0]->pr_pid = (int)uregs[R_RAX];
	args[0]->pr_ppid = (*(uint64_t *)copyin(uregs[R_RDI], 8) & 0x8000) != 0 ? ppid : pid;
	args[0]->pr_uid = uid;
	args[0]->pr_gid = gid;
	args[0]->pr_fname = execname;
	args[0]->pr_psargs = curpsinfo->pr_psargs;
}

proc:::lwp-create
/(int64_t)uregs[R_RAX] > 0 && (uregs[R_RDI] & 0x10000) != 0/
{
	this->at = "syscall::clone:return";
	args[0]->pr_lwpid = (int)uregs[R_RAX];
	args[1]->pr_pid = pid;
	args[1]->pr_ppid = ppid;
	args[1]->pr_uid = uid;
	args[1]->pr_gid = gid;
	args[1]->pr_fname = execname;
	args[1]->pr_psargs = curpsinfo->pr_psargs;
}

proc:::lwp-create
/(int64_t)uregs[R_RAX] > 0 && (*(uint64_t *)copyin(uregs[R_RDI], 8) & 0x10000) != 0/
{
	this->at = "syscall::clone3:return";
	args[0]->pr_lwpid = (int)uregs[R_RAX];
	args[1]->pr_pid = pid;
	args[1]->pr_ppid = ppid;
	args[1]->pr_uid = uid;
	args[1]->pr_gid = gid;
	args[1]->pr_fname = execname;
	args[1]->pr_psargs = curpsinfo->pr_psargs;
}

/* In the child, and in the new thread: after fork, clone or clone3. */
proc:::start
{
	this->at = "syscall:vmlinux:schedule_tail:start";
}

proc:::lwp-start
{
	this->at = "syscall:vmlinux:schedule_tail:lwp-start";
}

proc:::lwp-exit
{
	this->at = "syscall::exit:entry";
}

/* CLD_EXITED */
proc:::exit
{
	this->at = "syscall::exit_group:entry";
	arg0 = 1;
	args[0] = (int)1;
}

proc:::exec
{
	this->at = "syscall::execve:entry";
	arg0 = uregs[R_RDI];
	args[0] = copyinstr(uregs[R_RDI]);
}

proc:::exec
{
	this->at = "syscall::execveat:entry";
	arg0 = uregs[R_RSI];
	args[0] = copyinstr(uregs[R_RSI]);
}

/* A call that succeeds does not return. */
proc:::exec-failure
{
	this->at = "syscall::execve:return, syscall::execveat:return";
	arg0 = errno;
	args[0] = errno;
}

/* Before the first call of the new program, which its linker makes. */
proc:::exec-success
/!begun/
{
	this->at = "syscall:::entry";
	this->executed = 1;
}

/* A signal for a process that ignores it, in its sender: the kernel tells of it. */
proc:::signal-discard
{
	this->at = "sched:::signal-discard";
	arg2 = arg0;
	args[0]->pr_lwpid = args[0]->pr_lwpid;
	args[1]->pr_pid = args[1]->pr_pid;
	args[1]->pr_ppid = args[1]->pr_ppid;
	args[1]->pr_uid = args[1]->pr_uid;
	args[1]->pr_gid = args[1]->pr_gid;
	args[1]->pr_fname = args[1]->pr_fname;
	args[1]->pr_psargs = args[1]->pr_psargs;
	args[2] = (int)(arg0);
}

/* A thread that waits for signals has taken one: rt_sigtimedwait. */
proc:::signal-clear
/(int64_t)uregs[R_RAX] > 0/
{
	this->at = "syscall::rt_sigtimedwait:return";
	arg0 = uregs[R_RAX];
	args[0] = (int)uregs[R_RAX];
}

/*
 * A signal is sent when its call has succeeded. A call that may end the caller has no return; it fires before: to the
 * caller's own process or thread, which cannot fail, and to groups of processes.
 */
proc:::signal-send
/((int)uregs[R_RDI] <= 0 || (int)uregs[R_RDI] == pid) && (int)uregs[R_RSI] > 0 && (int)uregs[R_RSI] <= 64/
{
	this->at = "syscall::kill:entry";
	arg2 = (int)uregs[R_RSI];
	args[0]->pr_lwpid = (int)0;
	args[1]->pr_pid = (int)uregs[R_RDI];
	args[1]->pr_fname = (int)uregs[R_RDI] == pid ? execname : "<none>";
	args[2] = (int)uregs[R_RSI];
}

proc:::signal-send
/uregs[R_RAX] == 0 && (int)uregs[R_RDI] > 0 && (int)uregs[R_RDI] != pid && (int)uregs[R_RSI] != 0/
{
	this->at = "syscall::kill:return, syscall::rt_sigqueueinfo:return";
	arg2 = (int)uregs[R_RSI];
	args[0]->pr_lwpid = (int)0;
	args[1]->pr_pid = (int)uregs[R_RDI];
	args[1]->pr_fname = __program_name(uregs[R_RDI]);
	args[2] = (int)uregs[R_RSI];
}

proc:::signal-send
/uregs[R_RAX] == 0 && (int)uregs[R_RDI] == pid && (int)uregs[R_RSI] != 0/
{
	this->at = "syscall::rt_sigqueueinfo:return";
	arg2 = (int)uregs[R_RSI];
	args[0]->pr_lwpid = (int)0;
	args[1]->pr_pid = pid;
	args[1]->pr_fname = execname;
	args[2] = (int)uregs[R_RSI];
}

proc:::signal-send
/(int)uregs[R_RSI] == tid && (int)uregs[R_RDI] == pid && (int)uregs[R_RDX] > 0 && (int)uregs[R_RDX] <= 64/
{
	this->at = "syscall::tgkill:entry";
	arg2 = (int)uregs[R_RDX];
	args[0]->pr_lwpid = tid;
	args[1]->pr_pid = pid;
	args[1]->pr_fname = execname;
	args[2] = (int)uregs[R_RDX];
}

proc:::signal-send
/uregs[R_RAX] == 0 && ((int)uregs[R_RSI] != tid || (int)uregs[R_RDI] != pid) && (int)uregs[R_RDX] != 0/
{
	this->at = "syscall::tgkill:return";
	arg2 = (int)uregs[R_RDX];
	args[0]->pr_lwpid = (int)uregs[R_RSI];
	args[1]->pr_pid = (int)uregs[R_RDI];
	args[1]->pr_fname = (int)uregs[R_RDI] == pid ? execname : __program_name(uregs[R_RDI]);
	args[2] = (int)uregs[R_RDX];
}

proc:::signal-send
/uregs[R_RAX] == 0 && (int)uregs[R_RDX] != 0/
{
	this->at = "syscall::rt_tgsigqueueinfo:return";
	arg2 = (int)uregs[R_RDX];
	args[0]->pr_lwpid = (int)uregs[R_RSI];
	args[1]->pr_pid = (int)uregs[R_RDI];
	args[1]->pr_fname = (int)uregs[R_RDI] == pid ? execname : __program_name(uregs[R_RDI]);
	args[2] = (int)uregs[R_RDX];
}

proc:::signal-send
/(int)uregs[R_RDI] == tid && (int)uregs[R_RSI] > 0 && (int)uregs[R_RSI] <= 64/
{
	this->at = "syscall::tkill:entry";
	arg2 = (int)uregs[R_RSI];
	args[0]->pr_lwpid = tid;
	args[1]->pr_pid = pid;
	args[1]->pr_fname = execname;
	args[2] = (int)uregs[R_RSI];
}

/* A thread, or a descriptor of a process: which process that is, is not known. */
proc:::signal-send
/uregs[R_RAX] == 0 && (int)uregs[R_RDI] != tid && (int)uregs[R_RSI] != 0/
{
	this->at = "syscall::tkill:return";
	arg2 = (int)uregs[R_RSI];
	args[0]->pr_lwpid = (int)uregs[R_RDI];
	args[1]->pr_pid = (int)-1;
	args[1]->pr_fname = __program_name(uregs[R_RDI]);
	args[2] = (int)uregs[R_RSI];
}

proc:::signal-send
/uregs[R_RAX] == 0 && (int)uregs[R_RSI] != 0/
{
	this->at = "syscall::pidfd_send_signal:return";
	arg2 = (int)uregs[R_RSI];
	args[0]->pr_lwpid = (int)0;
	args[1]->pr_pid = (int)-1;
	args[1]->pr_fname = "<none>";
	args[2] = (int)uregs[R_RSI];
}

/*
 * Where a handler begins. Its arguments are the signal, the address of the siginfo (which the kernel writes only if the
 * handler was set with SA_SIGINFO) and that of the ucontext.
 */
syscall:vmlinux:handle_signal:signal-handle
{
	this->frame = __signal_frame(uregs[R_RSP], uregs[R_RDI], uregs[R_RIP], uregs[R_RCX] + 3 * uregs[R_R8] +
	    5 * uregs[R_R9] + 7 * uregs[R_R10] + 11 * uregs[R_R11] + 13 * uregs[R_RAX]);
}

proc:::signal-handle
/this->frame != 0/
{
	this->siginfo = this->frame == 2 ? uregs[R_RSI] : 0;
	arg0 = (int)uregs[R_RDI];
	arg1 = this->siginfo;
	arg2 = uregs[R_RIP];
	args[0] = (int)uregs[R_RDI];
	args[1] = (uint64_t)(this->siginfo);
	args[1]->si_signo = (int)uregs[R_RDI];
	args[1]->si_errno = *(int *)copyin(this->siginfo + 4, 4);
	args[1]->si_code = *(int *)copyin(this->siginfo + 8, 4);
	args[1]->si_pid = *(int *)copyin(this->siginfo + 16, 4);
	args[1]->si_uid = *(uint32_t *)copyin(this->siginfo + 20, 4);
	args[1]->si_addr = *(uint64_t *)copyin(this->siginfo + 16, 8);
	args[1]->si_status = *(int *)copyin(this->siginfo + 24, 4);
	args[1]->si_value = *(int64_t *)copyin(this->siginfo + 24, 8);
	args[1]->si_band = *(int64_t *)copyin(this->siginfo + 16, 8);
	args[1]->si_fd = *(int *)copyin(this->siginfo + 24, 4);
	args[2] = uregs[R_RIP];
}

/* A signal that an instruction has raised: its siginfo is always there, and has a code above 0. */
proc:::fault
/(uregs[R_RDI] == SIGILL || uregs[R_RDI] == SIGTRAP || uregs[R_RDI] == SIGBUS || uregs[R_RDI] == SIGFPE ||
    uregs[R_RDI] == SIGSEGV) && this->frame != 0 && *(int *)copyin(uregs[R_RSI] + 8, 4) > 0/
{
	arg0 = (int)uregs[R_RDI];
	arg1 = uregs[R_RSI];
	args[0] = (int)uregs[R_RDI];
	args[1] = (uint64_t)uregs[R_RSI];
	args[1]->si_signo = (int)uregs[R_RDI];
	args[1]->si_errno = *(int *)copyin(uregs[R_RSI] + 4, 4);
	args[1]->si_code = *(int *)copyin(uregs[R_RSI] + 8, 4);
	args[1]->si_addr = *(uint64_t *)copyin(uregs[R_RSI] + 16, 8);
}

syscall:::entry
{
	begun = 1;
	this->executed = 1;
}
