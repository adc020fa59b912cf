BEGIN { a = 1; b = 1L; c = "s"; d = timestamp; e = (char)1; self->f = arg0; this->g = probename; h = (int *)arg0; i = NULL;
	a = timestamp; e = 1000; }
