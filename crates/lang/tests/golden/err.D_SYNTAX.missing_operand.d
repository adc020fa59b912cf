BEGIN { x = ; }
END { y = 1 + }
ERROR { z = 1; w = *; }
