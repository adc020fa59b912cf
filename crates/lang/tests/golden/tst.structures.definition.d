struct s { int a; char *b; struct t { int x : 3; } c[4]; int (*f)(int, char *p, ...); };
BEGIN { }
