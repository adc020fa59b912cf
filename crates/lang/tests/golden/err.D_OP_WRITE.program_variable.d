/* typed target */
BEGIN { a.out`counter = 1; }
