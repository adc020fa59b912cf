/* typed target */
pid$target:a.out:serve:entry { trace(args[-1]); }
