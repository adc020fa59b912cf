BEGIN { @a += 5; }
