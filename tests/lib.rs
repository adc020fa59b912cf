//! Whole-program tests: the parts that the integration tests in `tests/tests/` share.
//!
//! A test has three parts. A *program* of `tests/programs/`, compiled on first use ([`program`]), verifies its own
//! results, prints its counts and ends with `OK`. A *tracer* is the nanoprobe command under test, always run with a
//! time limit ([`tracer`]). And there is an *expectation* about three things: the program's output is the same as in an
//! unprobed run, the tracer's results are exact ([`results`]), and afterwards the program's text and memory map are as
//! before ([`text`]).
//!
//! Counts are exact although a tracer attaches to a running program: programs started with `--wait`
//! print `ready` and wait for a line, and the test writes that line once the tracer has armed its
//! probes ([`tracer::wait_until_armed`]). No test depends on how long anything takes, except for
//! the limit after which it counts as hung.
//!
//! Counts that no test can know in advance are compared with those of a program that is single-stepped ([`stepper`]).
//!
//! [`live_tests!`] registers tests of live programs in two forms: with the tactics that nanoprobe chooses, and with `-x
//! tactic=trap`. A test that cannot run on a machine is left out with its reason on stderr, past the test runner's
//! capture, and in a summary when the test binary ends ([`left_out`]).
//!
//! Environment: `NANOPROBE` the command under test; `NANOPROBE_CYCLES` attach/detach cycles
//! (default 100); `NANOPROBE_KILLS` kill points a phase (default 20);
//! `NANOPROBE_EVERY_INSTRUCTION=all` also the programs that take minutes with every instruction
//! probed; `NANOPROBE_OPENSSL` a build of openssl whose own tests then run, too.

pub mod busy;
pub mod command;
pub mod compiler;
pub mod in_time;
pub mod left_out;
pub mod postgres;
pub mod program;
pub mod results;
pub mod stepper;
pub mod terminal;
pub mod text;
pub mod tracer;

/// The time after which any one command of a test counts as hung. It is generous, because the machine may be busy.
pub const LIMIT: std::time::Duration = std::time::Duration::from_secs(600);

/// An integer from the environment.
///
/// # Panics
/// When the variable is set and is no number.
pub fn number_from_environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// Registers each test twice: `NAME::by_default` and `NAME::by_traps`; the body gets the [`tracer::Form`].
#[macro_export]
macro_rules! live_tests {
    ($($(#[$attribute:meta])* fn $name:ident($form:ident) $body:block)*) => {
        $(
            mod $name {
                #[allow(unused_imports, reason = "not every body needs what its file imports")]
                use super::*;
                $(#[$attribute])*
                fn body($form: $crate::tracer::Form) $body
                #[test]
                fn by_default() { body($crate::tracer::Form::Default) }
                #[test]
                fn by_traps() { body($crate::tracer::Form::Trap) }
            }
        )*
    };
}
