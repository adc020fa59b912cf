pid$target:a.out:func:entry { @ = count(); }
