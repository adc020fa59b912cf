BEGIN { @[1] = count(); @[arg0] = count(); @u[(unsigned)1] = count(); @u[-1] = count(); }
