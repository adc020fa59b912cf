pid$target::f:entry /arg0 > 1/ { trace(1); if (arg1) { trace(2); } else trace(3); trace(4); }
