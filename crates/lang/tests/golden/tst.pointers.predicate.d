BEGIN /(char *)arg0/ { self->p = (char *)arg0; }
END /self->p && !self->p/ { trace(self->p); }
