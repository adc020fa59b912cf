void x;
BEGIN { }
