/* no target */
pid$target::f:entry { }
