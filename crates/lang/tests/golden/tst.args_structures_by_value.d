/* typed target */
pid$target:a.out:both:entry { trace(args[0].a); trace(args[0].b); trace(args[0].c); trace(args[1]); }
pid$target:a.out:many:entry { trace(args[1].words[3]); print(args[1]); trace(args[2]); }
pid$target:a.out:many:return { trace(args[1].last); print(args[1]); }
