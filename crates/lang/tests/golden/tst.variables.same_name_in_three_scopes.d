BEGIN { x = 1; self->x = "s"; this->x = 2L; trace(x); trace(self->x); trace(this->x); }
