typedef int function_t(int);
BEGIN { }
