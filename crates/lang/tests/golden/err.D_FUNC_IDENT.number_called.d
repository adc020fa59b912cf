BEGIN { 5(1); }
