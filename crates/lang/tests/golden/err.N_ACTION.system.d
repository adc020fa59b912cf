BEGIN { system("date"); }
BEGIN { @[sym(arg0)] = count(); }
BEGIN { speculate(1); }
