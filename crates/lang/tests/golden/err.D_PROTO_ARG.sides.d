profile-97 { @[stack()] = count(); }
profile-97 { @[ustack()] = count(); }
