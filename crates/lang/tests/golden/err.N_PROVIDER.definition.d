provider p { probe a(int, char *); probe b(); };
BEGIN { }
