BEGIN { if (pid == 1) { trace("one") } }
