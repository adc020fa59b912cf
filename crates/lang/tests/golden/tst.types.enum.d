enum colour { RED, GREEN = 5, BLUE };
BEGIN { trace(RED); trace(GREEN); trace(BLUE + 1); }
