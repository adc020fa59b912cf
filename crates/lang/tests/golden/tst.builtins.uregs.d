pid$target:a.out:f:entry { trace(uregs[R_RAX]); trace(uregs[R_PC]); trace(uregs[0]); trace(uregs[arg0]); trace((int)uregs[R_RDI]); trace(R_SP); }
