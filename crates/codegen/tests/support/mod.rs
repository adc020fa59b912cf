//! What the tests of generated code share: programs built by hand, an agent in Rust, a processor to run handlers on.
#![allow(dead_code, clippy::unwrap_used)] // each test program uses a part of this

pub mod agent;
pub mod build;
pub mod machine;
