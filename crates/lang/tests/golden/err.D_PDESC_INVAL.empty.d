::: { trace(1); }
