pid$target::f:return /self->ts/ { trace(timestamp - self->ts); }
pid$target::f:entry { self->ts = timestamp; }
