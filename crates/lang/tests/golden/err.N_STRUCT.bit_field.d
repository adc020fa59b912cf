struct s { int a : 3; };
BEGIN { this->p = (struct s *)alloca(8); this->p++->a = 1; }
