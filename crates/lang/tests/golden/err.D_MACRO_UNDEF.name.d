BEGIN { trace($nothing); }
