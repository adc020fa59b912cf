/* typed target */
pid$target:a.out:paint:entry { trace(args[1]); }
pid$target:a.out:both:entry { print(args[0]); }
pid$target:a.out:both:entry { this->p = args[0]; }
