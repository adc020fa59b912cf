/* A library to load and unload, with a variable that the dynamic linker finds for each thread. */
__attribute__((noinline, noclone)) int function(int value)
{
	__asm__ volatile("" ::: "memory");
	return value * 5 + 2;
}

static __thread int counter __attribute__((tls_model("global-dynamic")));

int local_counter(int by)
{
	counter += by;
	return counter;
}
