BEGIN { p = (void *)arg0; p++; }
