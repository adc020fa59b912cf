/* typed target */
BEGIN { trace(a.out`label); }
