BEGIN { self->sum += 5; }
