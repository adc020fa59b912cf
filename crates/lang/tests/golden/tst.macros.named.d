BEGIN { trace($target); trace($$target); trace($pid); trace($uid); trace($$0); trace($0); }
