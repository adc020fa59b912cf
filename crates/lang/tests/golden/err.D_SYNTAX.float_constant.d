BEGIN { trace(1.5); }
BEGIN { trace(1e3); }
BEGIN { trace(.5); }
