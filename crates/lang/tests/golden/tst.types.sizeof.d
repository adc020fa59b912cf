BEGIN { trace(sizeof (int)); trace(sizeof (char *)); trace(sizeof (arg0)); trace(sizeof timestamp); trace(sizeof ('a')); }
