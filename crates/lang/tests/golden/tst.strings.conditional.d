BEGIN { trace(pid ? "yes" : "no"); trace(arg0 ? copyinstr(arg0) : "<null>"); }
