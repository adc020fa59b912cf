/* Probes of 0 to 10 arguments of all kinds, for the header and the object of nanoprobe -h and -G. */
enum color { RED, GREEN };

provider own {
	probe none();
	probe one(int);
	probe two(signed char, unsigned char) : (int less, int more);
	probe three(short, unsigned short, boolean);
	probe four(long, unsigned long, const char *, char *);
	probe five(enum color, struct point *, unsigned int, int, unsigned);
	probe six(int, int, int, int, int, int);
	probe seven(int, int, int, int, int, int, int);
	probe eight(int, int, int, int, int, int, int, int);
	probe nine(int, int, int, int, int, int, int, int, int);
	probe ten(long, long, long, long, long, long, long, long, long, long);
	probe query__start__here(char *text);
};

provider other__part {
	probe done(long);
};

#pragma D attributes Evolving/Evolving/Common provider own provider
#pragma D attributes Private/Private/Unknown provider own args
