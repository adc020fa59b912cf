//! What is known of a program that stands before its first instruction.
//!
//! It has one thread, which we trace, and its memory is nobody else's (execve(2)). So its map changes only by the calls
//! that the tracer makes in it, and its threads, its seccomp mode and its signal actions do not change at all. An exec
//! would cost a third more if all of this were read again at each step.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::map::Map;

/// See the module's description. At first, nothing is known.
#[derive(Debug, Default)]
pub(crate) struct AtStart(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    stands: bool,
    /// As read since the last call that was made in the program.
    map: Option<Map>,
}

impl AtStart {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program stands there now.
    pub fn begin(&self) {
        *self.state() = State {
            stands: true,
            map: None,
        };
    }

    /// The program runs from now on, or may run.
    pub fn end(&self) {
        *self.state() = State::default();
    }

    /// A call is made in the program.
    pub fn note_call(&self) {
        self.state().map = None;
    }

    /// Whether the program stands there.
    pub fn stands(&self) -> bool {
        self.state().stands
    }

    /// The map, if it was read before.
    pub fn map(&self) -> Option<Map> {
        self.state().map.clone()
    }

    /// Keeps a map that was read, if the program stands there.
    pub fn keep(&self, map: &Map) {
        let mut state = self.state();
        if state.stands {
            state.map = Some(map.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_kept_until_a_call_is_made_or_the_program_runs() {
        let (known, map) = (AtStart::default(), Map::parse(b"1000-2000 r-xp 0 00:00 0 \n"));
        known.keep(&map);
        assert_eq!(known.map(), None, "the program runs");
        known.begin();
        known.keep(&map);
        assert_eq!(known.map(), Some(map.clone()));
        known.note_call();
        assert_eq!(known.map(), None);
        known.keep(&map);
        known.end();
        assert!(!known.stands() && known.map().is_none());
    }
}
