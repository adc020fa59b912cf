int x; int x;
BEGIN { x = 1; }
