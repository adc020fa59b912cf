/* Uses the macros of probes, renamed, as an interpreter does. Most are guarded by their _ENABLED macro, one of these by
 * way of an inline function. */
#include "pydtrace_probes.h"

static inline int unlikely(int x) { return __builtin_expect(!!x, 0); }

static void run(const char *file, const char *name, int line, int depth)
{
	if (unlikely(PyDTrace_FUNCTION_ENTRY_ENABLED()))
		PyDTrace_FUNCTION_ENTRY(file, name, line);
	if (depth > 0)
		run(file, "inner", line + 1, depth - 1);
	else if (PyDTrace_GC_START_ENABLED())
		PyDTrace_GC_START(2);
	if (PyDTrace_GC_DONE_ENABLED())
		PyDTrace_GC_DONE(-7L);
	PyDTrace_AUDIT("exec", (void *)0);
	if (PyDTrace_FUNCTION_RETURN_ENABLED())
		PyDTrace_FUNCTION_RETURN(file, name, line);
}

int main(void)
{
	run("a.py", "outer", 10, 3);
	return 0;
}
