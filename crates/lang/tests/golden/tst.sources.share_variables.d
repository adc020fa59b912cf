BEGIN { x = 5; @a = count(); }
typedef int my;
/* source */
END { trace(x); printa(@a); trace((my)arg0); }
