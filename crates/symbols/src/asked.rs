//! Answers about a file's functions that callers have worked out. Each process that maps the file has the same ones.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use nanoprobe_patch::Padding;

/// For how many functions padding is kept.
const PADDINGS_MAX: usize = 4096;
/// How many questions are kept, and how many functions an answer may have.
const QUESTIONS_MAX: usize = 64;
const FUNCTIONS_MAX: usize = 1024;

/// See the module's description. What does not fit is worked out again.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// By the start and the end of the function.
    padding: Table<(u64, u64), Vec<Padding>>,
    matching: Table<String, Arc<[usize]>>,
}

type Table<K, V> = Mutex<HashMap<K, V>>;

impl Asked {
    pub fn padding(&self, extent: (u64, u64), find: impl FnOnce() -> Vec<Padding>) -> Vec<Padding> {
        once(&self.padding, PADDINGS_MAX, extent, find, |_| true)
    }

    pub fn matching(&self, question: String, find: impl FnOnce() -> Vec<usize>) -> Arc<[usize]> {
        let fits = |found: &Arc<[usize]>| found.len() <= FUNCTIONS_MAX;
        once(&self.matching, QUESTIONS_MAX, question, || find().into(), fits)
    }
}

/// The kept value, or a new one. Nothing is locked while it is found: that may take long, and two may find the same.
fn once<K: Eq + Hash, V: Clone>(
    table: &Table<K, V>,
    values_max: usize,
    key: K,
    find: impl FnOnce() -> V,
    fits: impl FnOnce(&V) -> bool,
) -> V {
    let lock = || table.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&key) {
        return known.clone();
    }
    let found = find();
    let mut table = lock();
    if table.len() < values_max && fits(&found) {
        table.insert(key, found.clone());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_answer_is_found_once() {
        let asked = Asked::default();
        assert_eq!(*asked.matching("few".to_owned(), || vec![7]), [7]);
        assert_eq!(*asked.matching("few".to_owned(), || panic!("it is kept")), [7]);
        let many = || vec![0; FUNCTIONS_MAX + 1];
        assert_eq!(asked.matching("many".to_owned(), many).len(), FUNCTIONS_MAX + 1);
        assert_eq!(
            *asked.matching("many".to_owned(), || vec![1]),
            [1],
            "too large to be kept"
        );
        for question in 0..2 * QUESTIONS_MAX {
            asked.matching(question.to_string(), Vec::new);
        }
        assert_eq!(asked.matching.lock().map(|table| table.len()).ok(), Some(QUESTIONS_MAX));
    }
}
