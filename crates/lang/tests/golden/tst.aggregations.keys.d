pid$target:a.out:f:entry { @[1, "s", ustack(5), probefunc, (char)1, (void *)arg0, ustack(3, 0)] = count(); }
