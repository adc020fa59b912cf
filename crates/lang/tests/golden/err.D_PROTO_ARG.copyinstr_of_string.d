BEGIN { trace(copyinstr(execname)); }
