/* typed target */
BEGIN { trace(a.out`own); }
