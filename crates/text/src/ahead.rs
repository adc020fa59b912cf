//! Work for a second processor: while the first processor plans, the second decodes the next functions. This file also
//! divides independent pieces of work between processors: the reading of modules, halves of lists.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope};

use nanoprobe_patch::FunctionMap;
use nanoprobe_symbols::Module;

use crate::code::{Neighbours, parts};

/// How many functions are handed over at once.
const BATCH: usize = 32;
/// How many batches may wait, since decoded functions take memory.
const BATCHES_MAX: usize = 4;
/// How many functions ahead of the planned one are decoded: planning of a function needs the padding of the functions
/// around it.
const LEAD: usize = 12;
/// With fewer functions, a second thread is not worth its cost.
const FUNCTIONS_MIN: usize = 256;
/// With fewer pieces of work, a second thread is not worth its cost.
const PIECES_MIN: usize = 64;

/// How many threads read files. Each holds a file's symbols meanwhile.
const READERS_MAX: usize = 4;

/// Functions that are decoded before they are planned, in the order of planning.
pub struct Ahead {
    decoded: Option<Receiver<Vec<Decoded>>>,
    received: usize,
    asked: usize,
}

type Decoded = (Range<u64>, Option<Vec<FunctionMap>>);

impl Ahead {
    /// Starts to decode the code at these extents of these modules. If no second thread can be started, nothing is
    /// decoded ahead. The decoding ends when the [`Ahead`] is dropped.
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

    /// Called before each function is planned: hands over the decoded functions up to this one, and a few more.
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

/// The results of all pieces, in order. If there are many pieces, another thread does one half.
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

/// The results of a few large pieces, in order. With several pieces and processors, other threads do some of the work.
pub fn shared_out<T: Sync, R: Send>(pieces: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if pieces.len() < 2 {
        return pieces.iter().map(work).collect();
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let results: Vec<Mutex<Option<R>>> = pieces.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let take = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let (Some(piece), Some(result)) = (pieces.get(index), results.get(index)) else {
                return;
            };
            let done = work(piece);
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        }
    };
    let others = processors.min(READERS_MAX).min(pieces.len()).saturating_sub(1);
    std::thread::scope(|scope| {
        for _ in 0..others {
            // A thread that cannot be started leaves its share to the others.
            let _ = Builder::new().spawn_scoped(scope, take);
        }
        take();
    });
    let results = results.into_iter();
    results
        .filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}

/// Reads the functions of some modules, which all will be asked for.
pub fn read_functions(modules: &[&Module]) {
    shared_out(modules, |module| {
        module.functions();
    });
}

#[cfg(test)]
mod tests {
    use super::{in_halves, shared_out};

    #[test]
    fn results_are_in_the_order_of_the_pieces() {
        for count in [0, 1, 63, 64, 1001] {
            let pieces: Vec<usize> = (0..count).collect();
            let doubled: Vec<usize> = pieces.iter().map(|piece| 2 * piece).collect();
            assert_eq!(in_halves(&pieces, |piece| 2 * piece), doubled);
            assert_eq!(shared_out(&pieces, |piece| 2 * piece), doubled);
        }
    }
}
