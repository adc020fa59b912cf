BEGIN { this->p = (int *)arg0; trace(this->p->x); }
