//! kprobes for a program's own code: the C library `libnanoprobe` and its Rust face. `include/nanoprobe.h` is the
//! interface; here is how it is kept.
//!
//! | | |
//! |---|---|
//! | `hit/` | the hit path: C and assembly, what runs in the program's own threads |
//! | [`c`] | the header's types |

pub mod c;
pub mod hit;
