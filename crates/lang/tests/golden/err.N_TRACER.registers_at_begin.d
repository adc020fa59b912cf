BEGIN { trace(uregs[R_RIP]); }
