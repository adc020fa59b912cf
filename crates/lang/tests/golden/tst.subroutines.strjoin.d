BEGIN { trace(strjoin("a", "b")); }
