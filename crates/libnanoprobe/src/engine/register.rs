//! Registering and unregistering members: hits see each change first, then the text follows.

use nanoprobe_patch::{Tactic, TargetAddress};

use super::site::{Epochs, Member, OldList};
use super::{Engine, Spot};
use crate::error::Error;
use crate::hit::PROBES_MAX;
use crate::{hit, self_process};

/// Which patch a probe demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Any tactic will do.
    Any,
    /// A jump of some kind.
    Jump,
}

/// Members that were unregistered and may still be in use.
pub struct Withdrawn {
    lists: Vec<OldList>,
    members: Vec<Member>,
    indices: Vec<u32>,
    epochs: Option<Epochs>,
    /// The module of some of these members was unloaded.
    unloaded: bool,
    /// Why the text could not be brought up to date.
    failed: Option<Error>,
}

impl Withdrawn {
    /// Waits until no thread is in a handler of these members, and frees them.
    pub fn wait(&mut self) {
        if let Some(mut epochs) = self.epochs.take() {
            epochs.wait();
        }
        self.lists.clear();
        self.members.clear();
    }

    /// Reports what the caller must know.
    ///
    /// # Errors
    /// A module is gone, or the text could not be written.
    pub fn check(&mut self) -> Result<(), Error> {
        match self.failed.take() {
            Some(error) => Err(error),
            None if self.unloaded => Err(Error::Unloaded),
            None => Ok(()),
        }
    }

    /// Whether all threads have left the handlers of these members.
    pub fn is_over(&mut self) -> bool {
        self.epochs.as_mut().is_none_or(Epochs::are_over)
    }
}

impl Engine {
    /// Registers all members or none. Yields their spots, in the same order.
    ///
    /// # Errors
    /// The first reason; nothing is changed then.
    pub fn register(&mut self, mut members: Vec<(TargetAddress, Member, Demand)>) -> Result<Vec<Spot>, Error> {
        members.iter_mut().for_each(|(_, member, _)| self.prove(member));
        let mut spots: Vec<Spot> = Vec::with_capacity(members.len());
        let mut demands = Vec::new();
        let mut result = Ok(());
        for (address, mut member, demand) in members {
            self.numbers.ids += 1;
            member.id = self.numbers.ids;
            let counted = member.is_counted();
            let index = if counted { self.take_index() } else { Ok(0) };
            let added = index.and_then(|index| {
                member.entry.index = index;
                if let Some(calls) = member.calls.as_ref().filter(|_| counted) {
                    calls.set_index(index);
                }
                let id = member.id;
                match self.add(address, member) {
                    Ok(function) => Ok(Spot {
                        function,
                        address: address.0,
                        index,
                        id,
                    }),
                    Err(error) => {
                        self.numbers.free.extend((index != 0).then_some(index));
                        Err(error)
                    }
                }
            });
            match added {
                Ok(spot) => {
                    spots.push(spot);
                    demands.push(demand);
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let result = result
            .and_then(|()| self.watch_libraries(&spots))
            .and_then(|()| self.follow(&spots))
            .and_then(|()| self.check(&spots, &demands));
        self.own.forget_new_bytes();
        if let Err(error) = result {
            let _ = self.withdraw(&spots, true);
            return Err(error);
        }
        Ok(spots)
    }

    /// Adds a member, and yields the start of its function.
    fn add(&mut self, address: TargetAddress, member: Member) -> Result<u64, Error> {
        let function = self.function_at(address)?;
        function.site(address.0)?.add(member);
        Ok(function.extent.start)
    }

    fn check(&self, spots: &[Spot], demands: &[Demand]) -> Result<(), Error> {
        for (spot, demand) in spots.iter().zip(demands) {
            if *demand == Demand::Jump && self.tactic(spot) == Some(Tactic::Trap) {
                return Err(Error::Tactic(TargetAddress(spot.address)));
            }
        }
        Ok(())
    }

    /// Unregisters members. If `wait` is true, waits until no thread is in their handlers. Even if the text cannot be
    /// written, the handlers do not run any more. The text is then restored with the next change
    /// ([`Withdrawn::check`]).
    pub fn withdraw(&mut self, spots: &[Spot], wait: bool) -> Withdrawn {
        let mut withdrawn = Withdrawn {
            lists: Vec::new(),
            members: Vec::new(),
            indices: Vec::new(),
            epochs: None,
            unloaded: false,
            failed: None,
        };
        for spot in spots {
            if let Some(member) = self.unloaded.remove(&spot.id) {
                withdrawn.members.push(member);
                withdrawn.indices.extend((spot.index != 0).then_some(spot.index));
                withdrawn.unloaded = true;
                continue;
            }
            let Some(state) = self.state_mut(spot) else { continue };
            let (gone, kept) = std::mem::take(&mut state.members)
                .into_iter()
                .partition(|member| member.id == spot.id);
            state.members = kept;
            withdrawn.lists.push(state.publish());
            withdrawn.members.extend::<Vec<Member>>(gone);
            withdrawn.indices.extend((spot.index != 0).then_some(spot.index));
        }
        for index in &withdrawn.indices {
            self.shown.clear(*index);
        }
        withdrawn.failed = self.repatch(spots).err();
        self_process::synchronise_memory();
        withdrawn.epochs = Some(Epochs::now());
        if wait {
            withdrawn.wait();
            self.numbers.free.append(&mut withdrawn.indices);
        }
        withdrawn
    }

    /// Frees the indices of withdrawn members, so that they may be used again.
    pub fn reclaim(&mut self, mut withdrawn: Withdrawn) {
        self.numbers.free.append(&mut withdrawn.indices);
    }

    /// Switches a member on or off.
    ///
    /// # Errors
    /// The text cannot be written, or no jump fits any more.
    pub fn enable(&mut self, spot: &Spot, enabled: bool) -> Result<(), Error> {
        if self.unloaded.contains_key(&spot.id) {
            return Err(Error::Unloaded);
        }
        if let Some(member) = self.member(spot) {
            let value = u32::from(enabled);
            member.entry.enabled.store(value, std::sync::atomic::Ordering::Release);
        }
        self.repatch(&[*spot])
    }

    pub(super) fn take_index(&mut self) -> Result<u32, Error> {
        if let Some(index) = self.numbers.free.pop() {
            hit::clear_counts(index);
            return Ok(index);
        }
        if self.numbers.next as usize >= PROBES_MAX {
            return Err(Error::Limit("too many probes at a time"));
        }
        self.numbers.next += 1;
        Ok(self.numbers.next - 1)
    }

    /// Publishes the sites' lists, then brings the text up to date.
    fn follow(&mut self, spots: &[Spot]) -> Result<(), Error> {
        let mut old = Vec::new();
        for spot in spots {
            old.extend(self.state_mut(spot).map(|state| state.publish()));
        }
        let done = self.repatch(spots);
        self_process::synchronise_memory();
        // This never waits: handlers may take long, and may need a lock that the calling thread holds.
        self.bury(old, Vec::new());
        done
    }

    /// Keeps lists and members that threads may still be reading, and frees those that no thread reads any more.
    pub(super) fn bury(&mut self, lists: Vec<OldList>, members: Vec<Member>) {
        self.replaced.retain_mut(|(epochs, ..)| !epochs.are_over());
        self.replaced.push((Epochs::now(), lists, members));
    }
}
