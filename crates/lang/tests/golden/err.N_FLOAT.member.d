/* typed target */
pid$target:a.out:serve:entry { trace(args[0]->ratio + 1); }
pid$target:a.out:serve:entry { self->r = args[0]->ratio; }
