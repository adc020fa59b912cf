BEGIN { a = 1; @a = sum(a); }
