BEGIN { *(int *)arg0 = 1; }
