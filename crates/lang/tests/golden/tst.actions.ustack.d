BEGIN { ustack(); ustack(10); ustack(5, 100); }
