int string x;
BEGIN { }
