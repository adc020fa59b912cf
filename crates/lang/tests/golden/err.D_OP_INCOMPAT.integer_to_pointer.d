BEGIN { p = (int *)arg0; p = 5; }
