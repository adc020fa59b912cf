pid$target::f:entry { total += arg0; }
