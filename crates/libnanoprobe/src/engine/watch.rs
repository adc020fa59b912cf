//! The registered watchpoints, and the counts of their hits.
//!
//! They change no text: a debug register watches, and its signal leads to the hit path (`hit/watch.c`). For each
//! watchpoint the kernel counts accesses, and the hit path counts handlers that ran. The difference is what was
//! missed.

use std::sync::atomic::Ordering;

use nanoprobe_arena::registry::{ENABLED, Row, UNCOUNTED};
use nanoprobe_patch::TargetAddress;
use nanoprobe_patch::order::sort_by_number;

use super::Engine;
use super::site::Epochs;
use crate::error::Error;
use crate::self_process::{Breakpoint, EXECUTE, Place, try_out};
use crate::{hit, self_process};

/// A registered watchpoint.
pub struct Watchpoint {
    watch: Box<hit::Watch>,
    breakpoint: Breakpoint,
    place: Place,
    enabled: bool,
    /// The watchpoint's number in the order of registration.
    id: u64,
}

/// The watchpoints: at most one for each debug register.
#[derive(Default)]
pub struct Watchpoints {
    all: Vec<Watchpoint>,
    has_tried: bool,
}

impl Watchpoints {
    /// The index of the watchpoint that a structure of the caller describes.
    fn index_of(&self, owner: usize) -> Option<usize> {
        self.all.iter().position(|one| one.watch.owner as usize == owner)
    }
}

/// A watchpoint that was unregistered. It may be dropped only when no thread is in its handler.
pub struct WithdrawnWatch {
    watch: Box<hit::Watch>,
    epochs: Epochs,
}

impl WithdrawnWatch {
    /// Waits until no thread is in the handler, and yields the index, which is free after that.
    pub fn wait(mut self) -> u32 {
        self.epochs.wait();
        self.watch.index
    }
}

/// The state of a watchpoint.
pub struct WatchState {
    /// The bytes that are watched.
    pub place: Place,
    /// Whether the watchpoint is enabled.
    pub enabled: bool,
    /// How often the watchpoint's handler ran.
    pub hits: u64,
    /// How often the processor saw an access and the handler did not run.
    pub missed: u64,
}

impl Watchpoint {
    /// The watchpoint's row for `nanoprobe -l`.
    pub(super) fn row(&self) -> (u32, Row) {
        let flags = [(self.enabled, ENABLED), (self.watch.handler.is_none(), UNCOUNTED)];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag);
        let row = Row {
            address: self.place.address,
            order: self.id,
            state: u64::from(b'w') | flags.sum::<u64>(),
        };
        (self.watch.index, row)
    }

    fn state(&self) -> WatchState {
        let counted = self.breakpoint.count() + self.watch.lost.load(Ordering::Relaxed);
        // The kernel has counted an access before its handler runs.
        let hits = match self.watch.handler {
            Some(_) => hit::counts(self.watch.index).0,
            None => counted,
        };
        WatchState {
            place: self.place,
            enabled: self.enabled,
            hits,
            missed: counted.saturating_sub(hits),
        }
    }
}

impl Engine {
    /// Registers a watchpoint. `watch.key` is 0.
    ///
    /// # Errors
    /// The watchpoint is registered already; another watchpoint is on these bytes; no debug register is free.
    pub fn register_watch(&mut self, mut watch: Box<hit::Watch>, mut place: Place) -> Result<(), Error> {
        let owner = watch.owner as usize;
        if self.watches.index_of(owner).is_some() {
            return Err(Error::Registered);
        }
        let overlaps = |other: &Watchpoint| {
            let other = &other.place;
            (other.kind == EXECUTE) == (place.kind == EXECUTE)
                && other.address < place.address + place.length
                && place.address < other.address + other.length
        };
        if self.watches.all.iter().any(overlaps) {
            return Err(Error::Watched(TargetAddress(place.address)));
        }
        if !self.watches.has_tried {
            try_out()?;
            self.watches.has_tried = true;
        }
        self.refresh()?;
        match self.take_signals() {
            // The signal of a watchpoint comes from no breakpoint: a thread that blocks it misses the access, and
            // the process goes on.
            Err(Error::Blocked(_)) => self.take_actions()?,
            taken => taken?,
        }
        watch.key = hit::watch_key();
        place.signal = watch.handler.is_some().then_some(watch.key);
        let breakpoint = Breakpoint::open(place)?;
        let enabled = watch.enabled.load(Ordering::Relaxed) != 0;
        watch.index = self.take_index()?;
        if !hit::publish_watch(&watch) {
            self.numbers.free.push(watch.index);
            return Err(Error::Limit("too many watchpoints"));
        }
        self.numbers.ids += 1;
        let watchpoint = Watchpoint {
            watch,
            breakpoint,
            place,
            enabled,
            id: self.numbers.ids,
        };
        self.shown.watch(&watchpoint);
        let begun = if enabled {
            watchpoint.breakpoint.enable(true)
        } else {
            Ok(())
        };
        self.watches.all.push(watchpoint);
        if let Err(error) = begun {
            if let Ok(withdrawn) = self.withdraw_watch(owner) {
                self.numbers.free.push(withdrawn.wait());
            }
            return Err(error);
        }
        Ok(())
    }

    /// Unregisters a watchpoint: its handler does not begin any more.
    ///
    /// # Errors
    /// The watchpoint is not registered.
    pub fn withdraw_watch(&mut self, owner: usize) -> Result<WithdrawnWatch, Error> {
        let found = self.watches.index_of(owner).ok_or(Error::NotRegistered)?;
        let found = self.watches.all.swap_remove(found);
        let Watchpoint { watch, breakpoint, .. } = found;
        hit::withdraw_watch(&watch);
        self.shown.clear(watch.index);
        drop(breakpoint);
        self_process::synchronise_memory();
        Ok(WithdrawnWatch {
            watch,
            epochs: Epochs::now(),
        })
    }

    /// Frees the index of a watchpoint that is gone.
    pub fn reclaim_watch(&mut self, index: u32) {
        self.numbers.free.push(index);
    }

    /// Switches a watchpoint on or off.
    ///
    /// # Errors
    /// The watchpoint is not registered.
    pub fn enable_watch(&mut self, owner: usize, enabled: bool) -> Result<(), Error> {
        let found = self.watches.index_of(owner);
        let found = found.and_then(|index| self.watches.all.get_mut(index));
        let found = found.ok_or(Error::NotRegistered)?;
        // The handler is switched on before the processor, and off after it, so that no access is seen without its
        // handler.
        if enabled {
            found.watch.enabled.store(1, Ordering::Release);
        }
        found.breakpoint.enable(enabled)?;
        if !enabled {
            found.watch.enabled.store(0, Ordering::Release);
        }
        found.enabled = enabled;
        self.shown.watch(found);
        Ok(())
    }

    /// The state of the watchpoint that a structure describes.
    pub fn watch_state(&self, owner: usize) -> Option<WatchState> {
        self.watches
            .all
            .get(self.watches.index_of(owner)?)
            .map(Watchpoint::state)
    }

    /// The states of all watchpoints, ascending by address.
    pub fn watch_states(&self) -> Vec<WatchState> {
        let mut states: Vec<WatchState> = self.watches.all.iter().map(Watchpoint::state).collect();
        sort_by_number(&mut states, |state| state.place.address);
        states
    }

    /// Opens the watchpoints of a child of fork, which has its own events.
    pub(super) fn watches_forked(&mut self) -> Result<(), Error> {
        for watchpoint in &mut self.watches.all {
            let counted = watchpoint.state().hits;
            watchpoint.watch.lost.store(0, Ordering::Relaxed);
            watchpoint.breakpoint.forked(counted)?;
            if watchpoint.enabled {
                watchpoint.breakpoint.enable(true)?;
            }
        }
        Ok(())
    }
}
