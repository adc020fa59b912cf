profile-97, profile:::profile-1s { stack(); stack(5); printf("%k", stack(2)); @[stack(), ustack(3)] = count(); }
sched:::off-cpu { @sleeps[stack()] = count(); }
sched:::on-cpu { @sleeps[stack(4)] = count(); }
