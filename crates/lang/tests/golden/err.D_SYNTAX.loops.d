BEGIN { for (i = 0; i < 5; i++) trace(i); }
BEGIN { while (1) trace(1); }
