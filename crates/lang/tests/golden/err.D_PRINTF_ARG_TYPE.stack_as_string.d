pid$target:a.out:f:entry { printf("%s", ustack(3)); }
