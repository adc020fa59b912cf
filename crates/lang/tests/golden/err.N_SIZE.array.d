struct big { char bytes[2000000]; };
BEGIN { }
