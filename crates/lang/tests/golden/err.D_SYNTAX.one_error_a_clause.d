BEGIN { x = ; y = ; }
END { z = ; }
BEGIN { trace(1); }
