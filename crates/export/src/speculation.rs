//! Speculations: records that wait for a commit or a discard.
//!
//! ```text
//! speculate(id); printf(...)    the record waits under id; all such records have at most `specsize` bytes
//! commit(id)                    all of them are printed, in the order of their time; id is free again
//! discard(id)                   all of them are forgotten; id is free again
//! ```
//!
//! The target decides which numbers are taken, counts the bytes under them, and ends each only once. (A
//! later commit or discard has the number 0.) The records wait here. The limit here is a second one, in
//! case the target counts wrongly. Records of several threads come in the order of their time, except
//! between two rounds of reading. So a record may arrive after the commit that it precedes. Such a late
//! record is treated like the others of its speculation.

use std::collections::HashMap;

use nanoprobe_lang::interpret::read_field;
use nanoprobe_lang::layout::RecordLayout;
use nanoprobe_lang::program::{Clause, RecordKind, Statement};

/// Waiting records, each with the caller's own data.
#[derive(Debug)]
pub struct Speculations<T> {
    bytes_max: u64,
    waiting: HashMap<i64, Waiting<T>>,
    closed: HashMap<i64, Closed>,
    drops: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    bytes: u64,
    records: Vec<(u64, T)>,
}

#[derive(Clone, Copy, Debug)]
struct Closed {
    time: u64,
    committed: bool,
}

/// Whether a clause uses speculations at all: the records of other clauses are printed at once.
#[must_use]
pub fn is_speculative(clause: &Clause) -> bool {
    clause.statements.iter().any(|statement| match statement {
        Statement::Record(action) => matches!(
            action.kind,
            RecordKind::Speculate(_) | RecordKind::CommitSpeculation(_) | RecordKind::DiscardSpeculation(_)
        ),
        _ => false,
    })
}

/// The result for a record.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken<T> {
    /// The records to be printed now, in this order.
    pub print: Vec<T>,
    /// The speculations that have become free.
    pub freed: Vec<i64>,
}

impl<T> Speculations<T> {
    /// The state without waiting records. `bytes_max` is the option `specsize`.
    #[must_use]
    pub fn new(bytes_max: u64) -> Speculations<T> {
        Speculations {
            bytes_max,
            waiting: HashMap::new(),
            closed: HashMap::new(),
            drops: 0,
        }
    }

    /// The number of records that found no room in their speculation.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.drops
    }

    /// Takes a record (with its header) of a clause, together with the caller's own data.
    pub fn take(&mut self, clause: &Clause, layout: &RecordLayout, record: &[u8], time: u64, view: T) -> Taken<T> {
        let number = |statement: usize| {
            let field = layout.fields.iter().find(|field| field.statement == statement)?;
            read_field(record, field).map(|value| value.as_integer())
        };
        let mut taken = Taken {
            print: Vec::new(),
            freed: Vec::new(),
        };
        let mut view = Some(view);
        for (index, statement) in clause.statements.iter().enumerate() {
            let Statement::Record(action) = statement else { continue };
            match action.kind {
                RecordKind::Speculate(_) => {
                    if let (Some(id), Some(view)) = (number(index), view.take()) {
                        taken.print.extend(self.keep(id, record.len() as u64, time, view));
                    }
                }
                RecordKind::CommitSpeculation(_) => {
                    if let Some(id) = number(index).filter(|id| self.close(*id, time, true)) {
                        let mut records = self.waiting.remove(&id).map(|found| found.records).unwrap_or_default();
                        records.sort_by_key(|(time, _)| *time);
                        taken.print.extend(records.into_iter().map(|(_, view)| view));
                        taken.freed.push(id);
                    }
                }
                RecordKind::DiscardSpeculation(_) => {
                    if let Some(id) = number(index).filter(|id| self.close(*id, time, false)) {
                        self.waiting.remove(&id);
                        taken.freed.push(id);
                    }
                }
                _ => {}
            }
        }
        taken.print.extend(view);
        taken
    }

    /// Keeps a record. Yields the record if its speculation was already committed.
    fn keep(&mut self, id: i64, bytes: u64, time: u64, view: T) -> Option<T> {
        if let Some(closed) = self.closed.get(&id).filter(|closed| time <= closed.time) {
            return closed.committed.then_some(view);
        }
        let waiting = self.waiting.entry(id).or_insert(Waiting {
            bytes: 0,
            records: Vec::new(),
        });
        if waiting.bytes.saturating_add(bytes) > self.bytes_max {
            self.drops += 1;
        } else {
            waiting.bytes += bytes;
            waiting.records.push((time, view));
        }
        None
    }

    /// Closes a speculation. Yields whether the number is valid and the speculation was open.
    fn close(&mut self, id: i64, time: u64, committed: bool) -> bool {
        if id <= 0 || self.closed.get(&id).is_some_and(|closed| time <= closed.time) {
            return false;
        }
        self.closed.insert(id, Closed { time, committed });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nanoprobe_lang::layout::{Limits, record_layout};
    use nanoprobe_lang::{MacroValues, Source};

    /// A clause, and its record that contains this number.
    fn record(statement: &str, id: i64) -> (Clause, RecordLayout, Vec<u8>) {
        let text = format!("BEGIN {{ x = 1; {statement}(x); }}");
        let program = nanoprobe_lang::compile(&[Source::new("test", text)], &MacroValues::default()).unwrap();
        let clause = program.clauses[0].clone();
        let layout = record_layout(&clause, Limits::default());
        let mut bytes = vec![0; 24];
        bytes.extend_from_slice(&id.to_le_bytes());
        (clause, layout, bytes)
    }

    fn take(speculations: &mut Speculations<u32>, statement: &str, id: i64, time: u64, view: u32) -> Vec<u32> {
        let (clause, layout, bytes) = record(statement, id);
        speculations.take(&clause, &layout, &bytes, time, view).print
    }

    #[test]
    fn committed_records_come_in_the_order_of_their_time() {
        let mut speculations = Speculations::new(1 << 10);
        assert_eq!(take(&mut speculations, "speculate", 1, 20, 2), [0_u32; 0]);
        assert_eq!(take(&mut speculations, "speculate", 1, 10, 1), [0_u32; 0]);
        assert_eq!(take(&mut speculations, "speculate", 2, 15, 9), [0_u32; 0]);
        assert_eq!(take(&mut speculations, "commit", 1, 30, 3), [1, 2, 3]);
        assert_eq!(take(&mut speculations, "discard", 2, 31, 4), [4]);
        assert_eq!(take(&mut speculations, "commit", 2, 32, 5), [5]);
    }

    #[test]
    fn a_late_record_is_treated_like_the_others_of_its_speculation() {
        let mut speculations = Speculations::new(1 << 10);
        take(&mut speculations, "commit", 1, 30, 0);
        take(&mut speculations, "discard", 2, 30, 0);
        assert_eq!(take(&mut speculations, "speculate", 1, 29, 7), [7]);
        assert_eq!(take(&mut speculations, "speculate", 2, 29, 8), [0_u32; 0]);
        // The number is taken again.
        assert_eq!(take(&mut speculations, "speculate", 2, 40, 9), [0_u32; 0]);
        assert_eq!(take(&mut speculations, "commit", 2, 41, 10), [9, 10]);
    }

    #[test]
    fn records_without_room_are_counted() {
        let mut speculations = Speculations::new(70);
        for view in 0..5 {
            take(&mut speculations, "speculate", 1, u64::from(view), view);
        }
        assert_eq!(speculations.drops(), 3);
        assert_eq!(take(&mut speculations, "commit", 1, 30, 9), [0, 1, 9]);
    }

    #[test]
    fn invalid_numbers_are_not_freed() {
        let mut speculations = Speculations::new(70);
        for id in [0, -1, i64::MIN] {
            let (clause, layout, bytes) = record("commit", id);
            assert_eq!(speculations.take(&clause, &layout, &bytes, 1, 5).freed, [0_i64; 0]);
        }
    }
}
