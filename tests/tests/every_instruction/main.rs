//! Programs with every instruction probed: what they do stays the same, and every instruction is counted exactly.
//!
//! `NANOPROBE_EVERY_INSTRUCTION=all` adds what takes minutes.

mod openssl;
mod oracle;
mod programs;
mod round_trips;
mod subject;
