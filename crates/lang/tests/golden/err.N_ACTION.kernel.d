BEGIN { panic(); }
BEGIN { @[sym(arg0)] = count(); }
BEGIN { stack(1); }
