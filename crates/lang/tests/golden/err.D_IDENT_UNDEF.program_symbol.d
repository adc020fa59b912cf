/* typed target */
BEGIN { trace(a.out`nobody); }
BEGIN { trace(nobody); }
