BEGIN { @[ustack()] = count(); @[pid] = count(); }
