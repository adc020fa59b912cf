BEGIN { pid = 1; }
BEGIN { timestamp++; }
BEGIN { R_RAX = 1; }
