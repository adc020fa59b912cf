BEGIN /execname == "bash" && probefunc != "f"/ { trace(execname < "m"); trace(copyinstr(arg0) == "x"); trace((char *)arg0 == "x"); }
