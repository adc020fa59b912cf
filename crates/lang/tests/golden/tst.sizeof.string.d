BEGIN { trace(sizeof (string)); }
