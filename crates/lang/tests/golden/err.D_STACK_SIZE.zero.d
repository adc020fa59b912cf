profile-97 { stack(0); }
profile-97 { stack(2049); }
profile-97 { @[stack(x)] = count(); }
