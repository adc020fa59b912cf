BEGIN { printf("hello\n"); printf("%d %s %x %c %5d %-10s|%%\n", pid, execname, arg0, 'c', 1, "s"); printf("%*d", 5, 6); printf("%p", (void *)arg0); printf("%Y", walltimestamp); }
