/* One of the clause's probes is in the target. */
BEGIN, pid$target:a.out:f:entry { ustack(); trace(uregs[R_RIP]); trace(ucaller); }

/* Reading memory is fine anywhere. */
tick-1s { trace(*(int *)copyin(0x1000, 4)); }
