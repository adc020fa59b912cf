pid$target::a:entry, pid$target::b:return { trace(probefunc); }
