/* The library that dlopen.c loads. */
#define PROBED __attribute__((noipa))

/* volatile: clang runs constructors at compile time. */
static volatile int constructed;

PROBED void plugin_constructed(void)
{
	constructed++;
}

__attribute__((constructor)) static void construct(void)
{
	plugin_constructed();
}

PROBED long plugin_function(long value)
{
	return value * 3 + constructed;
}
