BEGIN { trace("a\0b"); }
