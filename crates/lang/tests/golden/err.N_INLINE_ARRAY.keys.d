inline int a[int i] = i;
BEGIN { }
