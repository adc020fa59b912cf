sched:::wakeup, sched:::off-cpu
/args[0]->pr_lwpid != tid/
{
	@[args[1]->pr_pid, args[1]->pr_ppid, args[1]->pr_uid, args[1]->pr_gid, args[1]->pr_fname] = count();
	trace(args[1]->pr_psargs);
}
