BEGIN { trace(&5); }
