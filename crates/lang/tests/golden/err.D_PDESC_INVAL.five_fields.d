pid$target:a.out:std:f:entry { }
