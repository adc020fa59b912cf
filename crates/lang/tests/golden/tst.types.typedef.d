typedef unsigned int counter_type;
typedef counter_type *cp;
counter_type n;
BEGIN { n = 5; trace((counter_type)-1); trace(*(cp)arg0); trace(sizeof (cp)); }
