//! D programs to machine code.
