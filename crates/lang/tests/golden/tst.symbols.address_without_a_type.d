/* typed target */
BEGIN { trace(&a.out`label); this->p = &`label; }
pid$target:a.out:serve:entry /arg0 == (uintptr_t)&`label/ { sym(arg0); func(arg0); mod(arg0); @[func(arg1), mod(arg1), sym(arg1)] = count(); }
