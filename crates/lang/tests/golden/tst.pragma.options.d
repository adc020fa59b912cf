#pragma D option quiet
#pragma D option bufsize=4m strsize=64 /* both */
#pragma ident "x"
#pragma option strsize=7
#pragma once
#pragma D attributes Stable/Stable/Common provider a b
BEGIN { exit(0); }
