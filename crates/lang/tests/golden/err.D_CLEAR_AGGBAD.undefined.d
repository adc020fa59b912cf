BEGIN { clear(@x); }
