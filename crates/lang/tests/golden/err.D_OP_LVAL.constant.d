BEGIN { 5 = 1; }
BEGIN { (pid + 1)++; }
