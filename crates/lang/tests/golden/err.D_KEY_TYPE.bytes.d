BEGIN { @[copyin(arg0, 8)] = count(); }
