BEGIN /pid/ /* why */ { trace(1); }
