BEGIN { panic(); }
BEGIN { stack(1); }
