BEGIN { system("date"); }
BEGIN { @[usym(arg0)] = count(); }
BEGIN { speculate(1); }
