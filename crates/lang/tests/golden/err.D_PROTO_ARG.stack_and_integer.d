pid$target:a.out:f:entry { @[ustack()] = count(); @[pid] = count(); }
