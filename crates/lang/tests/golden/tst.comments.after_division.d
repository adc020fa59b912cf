BEGIN { trace(arg0 / /* two */ 2); x = arg0 / /* a */ /* b */ 3; }
