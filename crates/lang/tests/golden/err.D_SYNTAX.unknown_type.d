self nothing_t x;
BEGIN { }
