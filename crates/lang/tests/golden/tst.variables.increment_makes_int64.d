BEGIN { n++; --m; self->k++; a["x"]++; this->c--; }
