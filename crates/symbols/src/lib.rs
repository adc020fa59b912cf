//! What a program's files and memory say about its code: modules, functions, unwinding tables.
