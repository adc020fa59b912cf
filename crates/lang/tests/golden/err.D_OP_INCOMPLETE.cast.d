BEGIN { trace(((struct stat *)arg0)->st_size); }
