/*
 * execsnoop - the programs that a process and its children execute
 *
 * usage: nanoprobe tool execsnoop {-p PID | -c COMMAND}
 *
 * One line for each execve and execveat, before the kernel has found the program: the process, its
 * parent, the path, and the first eight arguments. A shell tries the folders of PATH, so a program
 * may be there several times. Programs that executed programs execute are shown, too.
 *
 * example: what does a script execute?
 *
 *   # nanoprobe tool execsnoop -p bash
 *        PID       PPID  PATH: ARGUMENTS
 *      20917      20915  /usr/bin/ls: ls -l /tmp
 */
#pragma D option quiet
#pragma D option follow=all

BEGIN
{
	printf("%10s %10s  PATH: ARGUMENTS\n", "PID", "PPID");
}

syscall::execve:entry
{
	this->path = arg0;
	this->list = arg1;
}

syscall::execveat:entry
{
	this->path = arg1;
	this->list = arg2;
}

syscall::execve:entry,
syscall::execveat:entry
{
	this->a = this->list != 0 ? *(uint64_t *)copyin(this->list, 8) : 0;
	this->b = this->a != 0 ? *(uint64_t *)copyin(this->list + 8, 8) : 0;
	this->c = this->b != 0 ? *(uint64_t *)copyin(this->list + 16, 8) : 0;
	this->d = this->c != 0 ? *(uint64_t *)copyin(this->list + 24, 8) : 0;
	this->e = this->d != 0 ? *(uint64_t *)copyin(this->list + 32, 8) : 0;
	this->f = this->e != 0 ? *(uint64_t *)copyin(this->list + 40, 8) : 0;
	this->g = this->f != 0 ? *(uint64_t *)copyin(this->list + 48, 8) : 0;
	this->h = this->g != 0 ? *(uint64_t *)copyin(this->list + 56, 8) : 0;
	printf("%10d %10d  %s: %s %s %s %s %s %s %s %s\n", pid, ppid, copyinstr(this->path),
	    this->a != 0 ? copyinstr(this->a) : "", this->b != 0 ? copyinstr(this->b) : "",
	    this->c != 0 ? copyinstr(this->c) : "", this->d != 0 ? copyinstr(this->d) : "",
	    this->e != 0 ? copyinstr(this->e) : "", this->f != 0 ? copyinstr(this->f) : "",
	    this->g != 0 ? copyinstr(this->g) : "", this->h != 0 ? copyinstr(this->h) : "");
}
