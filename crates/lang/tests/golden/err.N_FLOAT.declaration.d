double x;
BEGIN { }
