pid$target:a.out:ns::over(int, const ns::Box&):entry { }
