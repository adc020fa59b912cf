BEGIN { x = 1; }
self int y;
int z;
string w[int];
END { self->y = x + z; w[z] = "a"; }
