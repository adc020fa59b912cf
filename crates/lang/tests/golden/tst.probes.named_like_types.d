int*:::x {}
pid$target::int:entry {}
