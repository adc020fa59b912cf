BEGIN { trace((int)execname); }
