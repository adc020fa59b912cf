BEGIN { @ = count(arg0); }
