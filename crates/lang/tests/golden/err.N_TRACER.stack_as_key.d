tick-1s, tick-97 { @[ustack(5)] = count(); }
