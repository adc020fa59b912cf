BEGIN { nonsense(1); }
