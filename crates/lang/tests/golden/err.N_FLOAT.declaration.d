self float f; BEGIN { }
