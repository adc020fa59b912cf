BEGIN { trace(copyin(arg0, 16)); trace(stringof(copyin(arg0, arg1))); this->b = copyin(arg0, 8); trace(((int *)this->b)[1]); }
