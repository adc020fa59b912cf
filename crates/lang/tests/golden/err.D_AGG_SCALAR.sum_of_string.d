BEGIN { @ = sum(execname); }
