/* typed target */
pid$target:a.out:serve:entry { trace(args[arg0]); }
