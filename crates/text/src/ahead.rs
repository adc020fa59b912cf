//! What a second processor does while the first one plans: it decodes the functions that come next. Also divides
//! work with independent pieces between two processors.

use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, Scope};

use nanoprobe_patch::FunctionMap;
use nanoprobe_symbols::Module;

use crate::code::{Neighbours, parts};

/// How many functions are handed over at once.
const BATCH: usize = 32;
/// How many batches wait at most, since decoded functions take memory.
const BATCHES_MAX: usize = 4;
/// How many functions ahead of the planned one are decoded: planning looks at the padding of the functions around
/// it.
const LEAD: usize = 12;
/// With fewer functions a second thread does not pay.
const FUNCTIONS_MIN: usize = 256;
/// Nor does it with fewer pieces of work.
const PIECES_MIN: usize = 64;

/// Functions that are decoded ahead of their planning, in its order.
pub struct Ahead {
    decoded: Option<Receiver<Vec<Decoded>>>,
    received: usize,
    asked: usize,
}

type Decoded = (Range<u64>, Option<Vec<FunctionMap>>);

impl Ahead {
    /// Starts decoding: the code at these extents of these modules. Where no second thread can be started, nothing is
    /// decoded ahead. It ends when the [`Ahead`] is dropped.
    pub fn start<'scope, 'modules: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        modules: &'modules [Module],
        wanted: Vec<(usize, Range<u64>)>,
    ) -> Ahead {
        let is_worth_it = wanted.len() >= FUNCTIONS_MIN;
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        let decode = move || {
            for batch in wanted.chunks(BATCH) {
                let decoded = batch.iter().map(|(module, extent)| {
                    let module = modules.get(*module);
                    (extent.clone(), module.and_then(|module| parts(module, extent)))
                });
                if sender.send(decoded.collect()).is_err() {
                    return;
                }
            }
        };
        let thread = is_worth_it.then(|| Builder::new().spawn_scoped(scope, decode));
        Ahead {
            decoded: thread.and_then(Result::ok).map(|_| receiver),
            received: 0,
            asked: 0,
        }
    }

    /// Called before each function is planned: hands over what is decoded up to it, and a little beyond.
    pub fn hand_over(&mut self, neighbours: &mut Neighbours) {
        self.asked += 1;
        while self.received < self.asked + LEAD {
            let Some(batch) = self.decoded.as_ref().and_then(|decoded| decoded.recv().ok()) else {
                self.decoded = None;
                return;
            };
            self.received += batch.len();
            for (extent, parts) in batch {
                if let Some(parts) = parts {
                    neighbours.know(extent, parts);
                }
            }
        }
    }
}

/// The results of all pieces, in order. Where there are many, another thread does one half.
pub fn in_halves<T: Sync, R: Send>(pieces: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if pieces.len() < PIECES_MIN {
        return pieces.iter().map(work).collect();
    }
    let (first, second) = pieces.split_at(pieces.len() / 2);
    let work = &work;
    std::thread::scope(|scope| {
        let other = Builder::new().spawn_scoped(scope, move || second.iter().map(work).collect::<Vec<R>>());
        let mut results: Vec<R> = first.iter().map(work).collect();
        match other.map(|other| other.join()) {
            Ok(Ok(others)) => results.extend(others),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => results.extend(second.iter().map(work)),
        }
        results
    })
}

#[cfg(test)]
mod tests {
    use super::in_halves;

    #[test]
    fn results_are_in_the_order_of_the_pieces() {
        for count in [0, 1, 63, 64, 1001] {
            let pieces: Vec<usize> = (0..count).collect();
            let doubled: Vec<usize> = pieces.iter().map(|piece| 2 * piece).collect();
            assert_eq!(in_halves(&pieces, |piece| 2 * piece), doubled);
        }
    }
}
