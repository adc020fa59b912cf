int x; self int y, *p; this string s; string a[int, string]; self uint64_t t[int];
BEGIN { x = 1; self->y = 2; this->s = "t"; a[1, "k"] = "v"; trace(a[x, "q"]); self->t[5] = 1; self->p = (int *)arg0; }
