#pragma D option quiet
#pragma D option bufsize=4m strsize=64 /* both */
#pragma ident "x"
#pragma D attributes Stable/Stable/Common provider a b
BEGIN { exit(0); }
