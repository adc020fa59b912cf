pid$target:a.out:f:entry { printf("%k", arg0); }
