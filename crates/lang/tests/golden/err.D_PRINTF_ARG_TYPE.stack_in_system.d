pid$target:a.out:f:entry { system("%k", ustack(3)); }
