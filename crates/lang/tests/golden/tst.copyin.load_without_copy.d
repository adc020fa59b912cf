BEGIN { trace(*(int *)copyin(arg0, 4)); trace(*(int *)copyin(arg0, sizeof (int))); trace(*(long *)copyin(arg0, 4)); trace(*(int *)copyin(arg0, arg1)); }
