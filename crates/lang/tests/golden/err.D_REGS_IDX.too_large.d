BEGIN { trace(uregs[28]); }
