BEGIN { a[1, "x", pid] = 5; trace(a[arg0, "y", 'c']); self->b[tid] = "v"; trace(self->b[0]); p[(char *)arg0] = 1; }
