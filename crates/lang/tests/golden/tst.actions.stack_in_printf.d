pid$target:a.out:f:entry { printf("%d %k%k%k\n", arg0, ustack(), ustack(3), jstack(5, 100)); }
