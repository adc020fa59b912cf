tick-1s, profile-97 { @[ustack(5)] = count(); }
