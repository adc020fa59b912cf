//! Programs with every instruction probed: their results stay the same, and every instruction is counted exactly.
//!
//! `NANOPROBE_EVERY_INSTRUCTION=all` adds programs that take minutes; `NANOPROBE_OPENSSL=FOLDER`
//! adds the tests of that build of openssl.

mod openssl;
mod openssl_own;
mod oracle;
mod programs;
mod round_trips;
mod subject;
