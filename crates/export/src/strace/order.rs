//! Lines in the order of time, and which of them strace would divide.
//!
//! ```text
//! thread 1   read begins                                  read ends       read(3,  <unfinished ...>
//! thread 2                 write begins   write ends                      write(4, "x", 1) = 1
//!                                                                         <... read resumed>"x", 1) = 1
//! ```
//!
//! The beginning of a call is held back until its end is there, because the memory of its arguments comes with the
//! end. It is not held longer than [`HELD`] if something else waits behind it: then it is printed with what is known.
//! What a signal's handler does in the same thread waits as long itself.

use std::collections::BTreeMap;
use std::ops::Bound;

/// How long the beginning of a call is held back, in ns.
pub(super) const HELD: i64 = 100_000_000;
/// The most that is held back.
const ITEMS_MAX: usize = 4096;

/// The number of a call.
pub(super) type Id = u64;
/// A place in the order: the time in ns, and a number that tells those of one time apart.
type Place = (i64, u64);

/// What is printed at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What<T> {
    Begins(Id),
    Ends(Id),
    /// What is no call.
    Other(T),
}

/// What is to be printed next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next<T> {
    /// A call with its end.
    Whole(Id),
    /// A call whose end comes later.
    Begun(Id),
    /// The end of such a call.
    Resumed(Id),
    Other(T),
}

struct Item<T> {
    thread: i64,
    what: What<T>,
}

/// What is not printed yet.
pub(super) struct Order<T> {
    items: BTreeMap<Place, Item<T>>,
    /// Where the calls end that have ended.
    ends: BTreeMap<Id, Place>,
    count: u64,
    latest: i64,
    /// How much later than others the items of a process may come, in ns.
    window: i64,
}

impl<T> Order<T> {
    pub(super) fn new(window: i64) -> Order<T> {
        Order {
            items: BTreeMap::new(),
            ends: BTreeMap::new(),
            count: 0,
            latest: 0,
            window,
        }
    }

    /// The latest time that was seen.
    pub(super) fn latest(&self) -> i64 {
        self.latest
    }

    /// Something was seen at this time.
    pub(super) fn passed(&mut self, time: i64) {
        self.latest = self.latest.max(time);
    }

    pub(super) fn add(&mut self, time: i64, thread: i64, what: What<T>) {
        self.passed(time);
        let place = (time, self.count);
        self.count += 1;
        if let What::Ends(id) = what {
            self.ends.insert(id, place);
        }
        self.items.insert(place, Item { thread, what });
    }

    /// Takes the next item, if it is time for it. `is_last`: nothing more comes.
    pub(super) fn take(&mut self, is_last: bool) -> Option<Next<T>> {
        let (place, item) = self.items.first_key_value()?;
        let (place, is_full) = (*place, self.items.len() > ITEMS_MAX);
        let is_due = |time: i64| is_last || is_full || time <= self.latest.saturating_sub(self.window);
        if !is_due(place.0) {
            return None;
        }
        let What::Begins(id) = item.what else {
            return match self.items.pop_first()?.1.what {
                What::Ends(id) => {
                    self.ends.remove(&id);
                    Some(Next::Resumed(id))
                }
                What::Other(other) => Some(Next::Other(other)),
                What::Begins(id) => Some(Next::Begun(id)),
            };
        };
        // A handler in the same thread has interrupted the call, which soon ends.
        let behind = self
            .items
            .iter()
            .nth(1)
            .filter(|(_, behind)| behind.thread == item.thread);
        let since = behind.map_or(place.0, |(behind, _)| behind.0);
        let is_old = self.latest.saturating_sub(self.window).saturating_sub(HELD) > since;
        let is_whole = match self.ends.get(&id) {
            Some(end) if is_due(end.0) => self.is_alone(place, *end, item.thread),
            // Nothing waits for it.
            None if self.items.len() == 1 && !is_last => return None,
            _ if !(is_last || is_full || is_old) => return None,
            _ => false,
        };
        self.items.pop_first();
        if is_whole {
            if let Some(end) = self.ends.remove(&id) {
                self.items.remove(&end);
            }
            return Some(Next::Whole(id));
        }
        Some(Next::Begun(id))
    }

    /// Whether nothing of other threads is between two places. Signal handlers of the same thread divide no line.
    fn is_alone(&self, begin: Place, end: Place, thread: i64) -> bool {
        let mut between = self.items.range((Bound::Excluded(begin), Bound::Excluded(end)));
        between.all(|(_, item)| item.thread == thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(order: &mut Order<&'static str>, is_last: bool) -> Vec<Next<&'static str>> {
        std::iter::from_fn(|| order.take(is_last)).collect()
    }

    #[test]
    fn a_call_is_divided_by_what_other_threads_do() {
        let mut order = Order::new(0);
        order.add(1, 7, What::Begins(0));
        order.add(2, 8, What::Begins(1));
        assert_eq!(all(&mut order, false), []);
        order.add(3, 8, What::Ends(1));
        order.add(4, 7, What::Ends(0));
        let expected = [Next::Begun(0), Next::Whole(1), Next::Resumed(0)];
        assert_eq!(all(&mut order, false), expected);
    }

    #[test]
    fn a_handler_of_the_same_thread_divides_nothing() {
        let mut order = Order::new(0);
        order.add(1, 7, What::Begins(0));
        order.add(2, 7, What::Begins(1));
        order.add(3, 7, What::Ends(1));
        order.add(4, 7, What::Ends(0));
        assert_eq!(all(&mut order, false), [Next::Whole(0), Next::Whole(1)]);
    }

    #[test]
    fn a_call_that_a_signal_ends_is_whole_however_long_it_has_waited() {
        let mut order = Order::new(0);
        order.add(1, 7, What::Begins(0));
        order.passed(1 + 2 * HELD);
        order.add(2 + 2 * HELD, 7, What::Other("signal"));
        assert_eq!(all(&mut order, false), []);
        order.add(3 + 2 * HELD, 7, What::Ends(0));
        assert_eq!(all(&mut order, false), [Next::Whole(0), Next::Other("signal")]);
        order.add(4 + 2 * HELD, 7, What::Begins(1));
        order.add(5 + 2 * HELD, 7, What::Other("signal"));
        order.passed(6 + 3 * HELD);
        let expected = [Next::Begun(1), Next::Other("signal")];
        assert_eq!(all(&mut order, false), expected, "the call goes on");
    }

    #[test]
    fn a_call_that_waits_holds_others_for_some_time_only() {
        let mut order = Order::new(0);
        order.add(1, 7, What::Begins(0));
        order.passed(1 + 2 * HELD);
        assert_eq!(all(&mut order, false), [], "nothing waits for it");
        order.add(2, 8, What::Other("line"));
        assert_eq!(all(&mut order, false), [Next::Begun(0), Next::Other("line")]);
        order.add(3, 7, What::Ends(0));
        assert_eq!(all(&mut order, false), [Next::Resumed(0)]);
        for count in 0..=ITEMS_MAX as i64 {
            order.add(3 + 2 * HELD + count, 9, What::Begins(1 + count as u64));
        }
        assert_eq!(order.take(false), Some(Next::Begun(1)), "no more than so many");
    }

    /// The items of another process come later.
    #[test]
    fn items_are_sorted_within_the_window() {
        let mut order = Order::new(10);
        order.add(5, 7, What::Begins(0));
        order.add(9, 7, What::Ends(0));
        order.add(6, 8, What::Other("line"));
        assert_eq!(all(&mut order, false), []);
        order.passed(16);
        assert_eq!(all(&mut order, false), []);
        order.passed(19);
        let expected = [Next::Begun(0), Next::Other("line"), Next::Resumed(0)];
        assert_eq!(all(&mut order, false), expected);
        order.add(20, 7, What::Begins(2));
        assert_eq!(all(&mut order, true), [Next::Begun(2)], "the end");
    }
}
