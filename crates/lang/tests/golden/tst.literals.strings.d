BEGIN { trace("a\tb\"c\\\n"); trace(""); trace("\x41\101"); trace("é"); }
