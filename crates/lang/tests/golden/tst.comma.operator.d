BEGIN { x = (1, 2); trace((x, "s")); }
