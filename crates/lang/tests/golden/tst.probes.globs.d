pid$target:libc.so.6:str[!a]*\?:entry { }
pid1:libstdc++.so.6::+0x1f {}
pid$target:a.out:f:0 {}
