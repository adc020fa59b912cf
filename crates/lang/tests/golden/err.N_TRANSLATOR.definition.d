translator int < long L > { a = L; b = { 1 }; };
BEGIN { }
