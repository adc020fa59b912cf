BEGIN { @[] = count(); }
