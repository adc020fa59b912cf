pid$target::f:entry
/* source */
pid$target::g:entry
