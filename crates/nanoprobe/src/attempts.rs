//! Attaching to a process that executes another program at that very moment is begun anew, with what it is now.

use nanoprobe_session::SessionError;

use crate::interrupt;

/// How often, for one that does not stop executing programs.
const ATTEMPTS: usize = 10;

/// Attaches and runs by `attempt`, which is told whether it is the first. Until the probes are in place, nothing has been
/// printed and nothing of ours has been left, so the next attempt is as good as the first.
///
/// # Errors
/// What the last attempt says.
pub fn persistently<T>(mut attempt: impl FnMut(bool) -> Result<T, anyhow::Error>) -> Result<T, anyhow::Error> {
    for number in 1..ATTEMPTS {
        match attempt(number == 1) {
            Err(error) if is_executed(&error) && !interrupt::requested() => {}
            other => return other,
        }
    }
    attempt(false)
}

fn is_executed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(SessionError::Executed { .. }))
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
        let result = persistently(|first| {
            tries.push(first);
            if tries.len() < 3 {
                Err(executed())
            } else {
                Ok(tries.len())
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
    fn one_that_does_not_stop_is_given_up() {
        let mut tries = 0;
        let result: Result<(), _> = persistently(|_| {
            tries += 1;
            Err(executed())
        });
        assert!(is_executed(&result.unwrap_err()));
        assert_eq!(tries, ATTEMPTS);
    }
}
