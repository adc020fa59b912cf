/*
 * dtruss - system calls in the layout of DTrace's dtruss
 *
 * usage: nanoprobe tool dtruss {-p PID | -c COMMAND}
 *
 * One line for each system call, when it returns: its first three arguments in hexadecimal, the result, and
 * the error (errno; 0: none). Calls that do not return are not shown. The tool strace decodes arguments.
 *
 * example:
 *
 *   # nanoprobe tool dtruss -c 'cat /etc/hostname'
 *   SYSCALL(args)            = return
 *   openat(0xFFFFFF9C, 0x7FFC2B3C2F51, 0x0)                  = 3 0
 *   read(0x3, 0x7F1C4E5F2000, 0x20000)               = 12 0
 */
#pragma D option quiet

BEGIN
{
	printf("SYSCALL(args) \t\t = return\n");
}

syscall:::return
{
	printf("%s(0x%X, 0x%X, 0x%X)\t\t = %d %d\n", probefunc, uregs[R_RDI], uregs[R_RSI], uregs[R_RDX], arg0, errno);
}
