BEGIN { @[execname] = count(); @[pid] = count(); }
