BEGIN { stack(1); }
pid$target:a.out:main:entry { @[stack()] = count(); }
syscall:::entry { printf("%k", stack()); }
tick-1s, profile-97 { stack(); }
profile:::tick-1s { stack(); }
*:::profile-97 { stack(); }
