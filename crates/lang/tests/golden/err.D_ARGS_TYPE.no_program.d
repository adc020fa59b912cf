pid$target:a.out:serve:entry { trace(args[0]); }
