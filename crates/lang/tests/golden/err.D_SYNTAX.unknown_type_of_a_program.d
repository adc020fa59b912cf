/* typed target */
pid$target:a.out:serve:entry { trace(offsetof(nobody_t, x)); }
