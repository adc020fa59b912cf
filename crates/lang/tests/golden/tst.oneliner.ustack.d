pid$target::malloc:entry { @[ustack()] = count(); }
