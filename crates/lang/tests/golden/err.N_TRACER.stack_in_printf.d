BEGIN { printf("%k", ustack(3)); }
