//! Shared parts of the tests of generated code: programs built by hand, an agent in Rust, a machine for handlers.
#![allow(dead_code, clippy::unwrap_used)] // each test program uses a part of this

pub mod agent;
pub mod build;
pub mod machine;
