//! Retries an attachment when the process executes another program meanwhile.

use std::time::{Duration, Instant};

use nanoprobe_session::SessionError;

use crate::interrupt;

/// The limits for a process that keeps executing programs: how many attempts, and for how long, if each attempt takes
/// many seconds.
const ATTEMPTS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait for a process whose libraries are not loaded yet.
const PATIENCE_WITH_LIBRARIES: Duration = Duration::from_secs(3);
/// The pause between two attempts, which take some milliseconds each.
const PAUSE: Duration = Duration::from_millis(5);

/// The position of an attempt among the retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub is_first: bool,
    /// Whether another attempt may follow, if the process is still being started.
    pub may_wait: bool,
}

/// Runs `attempt`, which attaches and traces, until an attempt succeeds or a limit is reached. Until the probes are in
/// place, an attempt prints nothing and leaves nothing in the process. So a later attempt is as good as the first.
///
/// # Errors
/// The error of the last attempt.
pub fn persistently<T>(mut attempt: impl FnMut(Attempt) -> Result<T, anyhow::Error>) -> Result<T, anyhow::Error> {
    let begun = Instant::now();
    let mut starting_since: Option<Instant> = None;
    let mut executed = 0;
    let mut is_first = true;
    loop {
        let waited = starting_since.map_or(Duration::ZERO, |since| since.elapsed());
        let is_patient = begun.elapsed() < PATIENCE && waited < PATIENCE_WITH_LIBRARIES;
        let may_wait = is_patient && !interrupt::requested();
        let error = match attempt(Attempt { is_first, may_wait }) {
            Ok(result) => return Ok(result),
            Err(error) => error,
        };
        is_first = false;
        match error.downcast_ref() {
            Some(SessionError::Executed { .. }) if may_wait && executed + 1 < ATTEMPTS => {
                executed += 1;
                starting_since = None;
            }
            Some(SessionError::Starting { .. }) if may_wait => {
                starting_since.get_or_insert_with(Instant::now);
                std::thread::sleep(PAUSE);
            }
            _ => return Err(settled(error)),
        }
    }
}

/// The error after the wait has ended: a name that was not found now counts as missing, although libraries may still be
/// loaded later.
fn settled(error: anyhow::Error) -> anyhow::Error {
    match error.downcast() {
        Ok(SessionError::Starting { error: Some(found), .. }) => (*found).into(),
        Ok(other) => other.into(),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executed() -> anyhow::Error {
        SessionError::Executed { pid: 7 }.into()
    }

    #[test]
    fn only_a_program_that_is_another_is_tried_again() {
        let mut tries = Vec::new();
        let result = persistently(|attempt| {
            tries.push(attempt.is_first);
            match tries.len() {
                1 => Err(executed()),
                2 => Err(SessionError::Starting { pid: 7, error: None }.into()),
                tries => Ok(tries),
            }
        });
        assert_eq!(result.unwrap(), 3);
        assert_eq!(tries, [true, false, false]);

        let mut tries = 0;
        let result: Result<(), _> = persistently(|_| {
            tries += 1;
            Err(SessionError::NotAttached.into())
        });
        assert!(result.is_err());
        assert_eq!(tries, 1);
    }

    #[test]
    fn a_missing_name_is_reported_when_the_libraries_do_not_come() {
        let starting = SessionError::Starting {
            pid: 7,
            error: Some(Box::new(SessionError::NotAttached)),
        };
        assert!(matches!(
            settled(starting.into()).downcast_ref(),
            Some(SessionError::NotAttached)
        ));
        assert_eq!(settled(anyhow::anyhow!("else")).to_string(), "else");
    }

    #[test]
    fn one_that_does_not_stop_is_given_up() {
        let mut tries = 0;
        let result: Result<(), _> = persistently(|_| {
            tries += 1;
            Err(executed())
        });
        assert!(matches!(
            result.unwrap_err().downcast_ref(),
            Some(SessionError::Executed { pid: 7 })
        ));
        assert_eq!(tries, ATTEMPTS);
    }
}
