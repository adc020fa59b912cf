BEGIN { printf("%d", execname); }
