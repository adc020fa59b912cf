BEGIN { printa(@x); }
END { @x = count(); }
