/* typed target */
inline int first = args[0];
