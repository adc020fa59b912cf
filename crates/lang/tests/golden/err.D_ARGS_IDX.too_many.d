/* typed target */
pid$target:a.out:serve:entry { trace(args[4]); }
pid$target:a.out:serve:return { trace(args[2]); }
