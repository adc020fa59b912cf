BEGIN { panic(); }
BEGIN { chill(1); }
