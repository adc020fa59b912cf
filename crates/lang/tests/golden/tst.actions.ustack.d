pid$target:a.out:f:entry { ustack(); ustack(10); ustack(5, 100); }
