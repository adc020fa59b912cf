//! Arming: patches go into the text and come out of it, while the program executes it.
//!
//! # What needs a stop of all threads, and what does not
//!
//! | step | how |
//! |---|---|
//! | mappings, descriptors, IFUNC resolvers | one borrowed thread; the others run (but see below) |
//! | agent, handlers, detours, tables, thread table | no thread is stopped: nothing leads there yet |
//! | **signal masks and actions, shims** | **all threads stopped, once, at the first patch** |
//! | sites, at any time | the breakpoint protocol ([`nanoprobe_text::change`]): running threads stop one by one |
//! | turning patches off and on again ([`Attachment::set_armed`]) | the same |
//! | taking sites back at the end | the same |
//! | **shims, hooks of unwinders, return addresses, masks, actions, unmapping** | **all threads stopped, once** |
//! | **the look whether our code is empty** | **in the same stop** |
//!
//! The protocol puts `int3` over instructions, and the kernel kills a process whose thread blocks the signal of its own
//! trap. So before the first trapping byte no thread may block SIGTRAP, and no thread may block it later without the
//! agent's knowledge. The masks are changed and the shims written in one stop, so that no thread can run between the
//! two. Detaching does the reverse in one stop: each thread really blocks the signals that it believes to block, and
//! its calls are no longer intercepted. Nothing else needs such a stop. (If there is a stop anyway, a patch of few
//! pages is written in it, too; two rounds of the protocol would disturb the program more.)
//!
//! A library that was loaded by dlopen may be unloaded at any time, and another one may be mapped at its place. There
//! all threads are stopped for each write of the protocol ([`live`]), and for the calls of IFUNC resolvers.
//!
//! A thread may stand in the middle of a run while it is patched: it meets a byte that traps, and is redirected
//! (invariant I1). There is one exception, a thread that sleeps in a system call inside of a run. A stop wakes the
//! thread for a moment. The thread would then repeat the call by way of our trap, and the return from the trap makes
//! the kernel forget how much of a timeout is left. So where a run displaces a `syscall`, sleeping threads are looked
//! at too, and are moved to the address after the relocated one.
//!
//! # Springboards
//!
//! The springboard of an `evict` lies in padding, which no thread reaches until the short jump leads there. It is
//! written in the protocol's middle step, or before everything else, so that it is whole when the jump becomes
//! live. It is *not* taken back with its patch: a thread may stand on it, between the two jumps, or come back to it
//! from a signal handler. All springboards stay until [`crate::detach`] has seen that no thread is inside of our
//! code.
//!
//! # Successors
//!
//! The jump of an `evict` without springboard ends with the bytes of the patch after it. Both are written in one
//! transition, in which the first one traps while the second changes. If only one of the two can be written, or only
//! one is taken back, [`nanoprobe_text::together`] decides about the other.
//!
//! # Hosts
//!
//! A springboard may lie in the last bytes of a displaced instruction, inside of another patch: its host. The host is
//! written like any other patch: the springboard in it is inside of an instruction, and so final before the short jump
//! becomes live. But the host is not taken back, or replaced, while the program runs, since a thread may stand on the
//! springboard. It stays until [`crate::detach`] has seen that no thread stands there. A probe that fires in it cannot
//! be turned off meanwhile.
//!
//! # The tracer may die in the middle
//!
//! Redirects, and the sites' entries in the arena, are published before any byte changes. A site then holds any
//! mixture of its original bytes, `int3`, and the patch's; in any mixture that the protocol passes through, every
//! start of an instruction is right or traps. A write that crosses pages may be torn by the kill: within a step
//! each byte may come alone. `nanoprobe restore` accepts each byte by itself.

mod giving_way;
mod in_children;
mod live;
mod made;
mod text;
mod writes;

use std::borrow::Borrow;
use std::collections::HashSet;
use std::mem::offset_of;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_arena::layout::{Control, STATE_ARMED, STATE_BUILDING, STATE_COMPLETE, Site};
use nanoprobe_arena::{ControlBlock, Memory as _, Structure as _};
use nanoprobe_lang::options::StopPolicy;
use nanoprobe_patch::{TargetAddress, TextRange};
use nanoprobe_target::{Pauses, Stopped};
use nanoprobe_text::Patch;
use nanoprobe_text::bytes::Bytes;
use nanoprobe_text::change::{Change, Whole};
use nanoprobe_text::groups::Groups;
use nanoprobe_text::moves::Moves;
use nanoprobe_text::pieces::bytes_of;
use nanoprobe_text::reader::Reader;
use nanoprobe_text::together::Links;

use self::live::{ProcessText, exchange, move_threads};
use self::text::{are_few_pages, holds_original, of_kind, springboards};
use self::writes::Writes;
use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::interrupt;
use crate::layout::SITES_MAX;
use crate::placement::{Changes, Refused, RefusedBecause};
use crate::progress::{self, Work};
use crate::signals::{self, guests};
use crate::site_table::{site_of, springboard_sites};

pub use self::text::ranges;

/// The result of writing patches into the text.
#[derive(Debug, Default)]
pub struct Armed {
    /// For how long threads stood still.
    pub pauses: Pauses,
    /// Patches that could not be written.
    pub refused: Vec<Refused>,
    /// Number of places patched, or taken back.
    pub patches: usize,
}

impl Armed {
    fn refuse(&mut self, patches: &[Patch], reason: &RefusedBecause) {
        self.refused.extend(patches.iter().map(|patch| Refused {
            site: Some(patch.built.address),
            function: String::new(),
            reason: reason.clone(),
        }));
    }
}

impl Attachment {
    /// Step 4 of attaching: patches the text. A place that another program has changed meanwhile is refused.
    /// `stopped`: all threads are stopped already.
    ///
    /// # Errors
    /// The target cannot be stopped or written. The bytes that were written by then are recorded, and detaching takes
    /// them back.
    pub fn arm(&mut self, stopped: Option<Stopped>, changes: Changes) -> Result<Armed, SessionError> {
        let _writing = progress::doing(Work::Writing, 0);
        let mut armed = Armed {
            refused: changes.refused,
            ..Armed::default()
        };
        let is_replaced = |patch: &Patch| !patch.shim && changes.replaced.contains(&patch.function);
        let (mut replaced, kept): (Vec<Patch>, Vec<Patch>) =
            std::mem::take(&mut self.patches).into_iter().partition(is_replaced);
        // If functions overlap or adjoin, one of them may be planned anew while the other keeps its patches.
        let goes: HashSet<TargetAddress> = replaced.iter().map(|patch| patch.built.address).collect();
        let torn = Links::of(&kept).torn(|successor| !goes.contains(&successor));
        let (torn, kept): (Vec<Patch>, Vec<Patch>) =
            kept.into_iter().partition(|patch| torn.contains(&patch.built.address));
        armed.refuse(&torn, &RefusedBecause::SuccessorGone);
        replaced.extend(torn);
        self.patches = kept;
        let live: Vec<&Patch> = replaced.iter().filter(|patch| !self.is_disarmed(patch)).collect();
        let old: Vec<TextRange> = live.iter().flat_map(|patch| ranges(patch)).collect();
        let now: Bytes = bytes_of(&old, |range| &range.patched).collect();
        let before = self.patches.len();
        let mut unused = Pauses::default();
        let text = ProcessText::of(self, &mut unused);
        let mut reader = Reader::new(&text);
        let mut new = Vec::new();
        for patch in changes.patches {
            if interrupt::requested() {
                new.clear();
                break;
            }
            if holds_original(&patch, &now, &mut reader) {
                new.push(patch);
            } else {
                armed.refuse(std::slice::from_ref(&patch), &RefusedBecause::TextDiffers);
            }
        }
        let comes: HashSet<TargetAddress> = new.iter().map(|patch| patch.built.address).collect();
        let torn = Links::of(&new).torn(|successor| comes.contains(&successor));
        let (torn, new): (Vec<Patch>, Vec<Patch>) =
            new.into_iter().partition(|patch| torn.contains(&patch.built.address));
        armed.refuse(&torn, &RefusedBecause::SuccessorGone);
        self.patches.extend(new);
        for patch in &replaced {
            self.off.disarmed.remove(&patch.built.address);
        }
        // A thread may still be in the detour of a replaced patch, or on its way there from a trap.
        self.retired.extend(replaced);
        self.publish_sites(before)?;
        self.beside.begin();
        let lost = self.arm_published(stopped, &old, before, &mut armed.pauses)?;
        self.beside.complete();
        if !lost.is_whole() {
            let is_lost = |patch: &mut Patch| !lost.has(patch.built.address.0);
            let gone: Vec<Patch> = self.patches.extract_if(before.., is_lost).collect();
            armed.refuse(&gone, &RefusedBecause::TextDiffers);
            // The tables for these patches stay, because a thread may be on its way from a byte that was written. For
            // the same reason the memory of their detours is not used again.
            self.gone
                .extend(gone.into_iter().map(|patch| Patch { room: 0, ..patch }));
        }
        armed.patches = self.patches.len() - before;
        Ok(armed)
    }

    /// Records that attaching is complete: all patches are in the text.
    ///
    /// # Errors
    /// The control block cannot be written.
    pub fn complete(&self) -> Result<(), SessionError> {
        Ok(ControlBlock::open(self.memory()?)?.set_state(STATE_COMPLETE)?)
    }

    /// Writes the patches from index `first` on in place of `old`.
    fn arm_published(
        &mut self,
        stopped: Option<Stopped>,
        old: &[TextRange],
        first: usize,
        pauses: &mut Pauses,
    ) -> Result<Groups, SessionError> {
        let is_empty = self.patches.len() == first;
        if is_empty && old.is_empty() {
            if let Some(stopped) = stopped {
                pauses.add_whole(stopped.release());
            }
            return Ok(Groups::default());
        }
        let policy = self.parameters.stop;
        let stands = stopped.is_some() || policy == StopPolicy::Always || !self.actions.are_installed();
        let new = self.patches.get(first..).unwrap_or_default();
        let few = policy == StopPolicy::Auto && are_few_pages(old, new.iter());
        let whole = stands && (stopped.is_some() || policy == StopPolicy::Always || few);
        let mut groups = Groups::default();
        // While all threads are stopped, nothing is computed that can be computed before, and nothing is freed.
        let at_once = stands.then(|| match whole {
            true => Writes::new(old, new),
            false => Writes::new(&[], &of_kind(new, true)),
        });
        // Nothing is written yet. If the end of the session is requested now, nothing need be written and nothing taken
        // back.
        if old.is_empty() && interrupt::requested() {
            self.patches.truncate(first);
            return Ok(groups);
        }
        if let Some(writes) = &at_once {
            let mut known = signals::Known::new();
            let mut stopped = match stopped {
                Some(stopped) => stopped,
                None => {
                    if !is_empty && !self.actions.are_installed() && self.actions.host.is_none() {
                        let mut one = self.process.stop_one()?;
                        known = signals::look(&self.actions, &mut one)?;
                        pauses.add_single(one.best_thread()?, one.release());
                    }
                    self.process.stop()?
                }
            };
            if !is_empty {
                self.install_actions(known, &mut stopped)?;
            }
            let all = self.patches.get(first..).unwrap_or_default();
            self.write_at_once(writes, (old, all), &mut groups, &mut stopped)?;
            pauses.add_whole(stopped.release());
        }
        if !whole {
            let new = self.patches.get(first..).unwrap_or_default();
            let later = if stands { of_kind(new, false) } else { new.into() };
            let springboards = springboards(&later);
            let is_written = self.write_by_protocol(old, &later, &springboards, &mut groups, pauses)?;
            if !is_written {
                let shims = self
                    .patches
                    .split_off(first)
                    .into_iter()
                    .filter(|patch| stands && patch.shim);
                self.patches.extend(shims);
            }
        }
        Ok(groups)
    }

    /// From here on the agent handles the signals that our code raises.
    fn install_actions(&mut self, known: signals::Known, stopped: &mut Stopped) -> Result<(), SessionError> {
        if let Some(host) = &self.actions.host {
            let function = self.agent(AgentFunction::OnSignalOfHost);
            guests::register(self.process.memory(), self.process.pid(), host, function)?;
            self.actions.are_hosts = true;
            return Ok(());
        }
        let arena = self.arena.clone().ok_or(SessionError::NotAttached)?;
        let agent = signals::Agent {
            arena: arena.memory(),
            table: self.addresses.table,
            code: self.addresses.code,
            is_sandboxed: self.is_sandboxed(),
        };
        signals::install(&mut self.actions, &agent, known, stopped)
    }

    /// Does what [`Attachment::set_armed`] says in the target's text.
    fn change_armed(&mut self, armed: bool, selected: &mut dyn FnMut(&Patch) -> bool) -> Result<Armed, SessionError> {
        let _claim = self.process.claim()?;
        let candidates = self
            .patches
            .iter()
            .filter(|patch| !patch.stays() && self.is_disarmed(patch) == armed);
        let chosen: Vec<&Patch> = candidates.filter(|patch| selected(patch)).collect();
        let mut unused = Pauses::default();
        let text = ProcessText::of(self, &mut unused);
        let mut reader = Reader::new(&text);
        let mut holds = |patch: &Patch| {
            let built = &patch.built;
            let wanted = if armed { &built.original } else { &built.patched };
            reader.holds(built.address, wanted)
        };
        let mut chosen: Vec<&Patch> = chosen.into_iter().filter(|patch| holds(patch)).collect();
        if !armed {
            self.leave_covered(&mut chosen)?;
        }
        self.keep_together(armed, &mut chosen);
        let mut done = Armed {
            patches: chosen.len(),
            ..Armed::default()
        };
        if chosen.is_empty() {
            return Ok(done);
        }
        // The patches are recorded before the first byte is written: if writing fails half-way, detaching looks at each
        // patch.
        for patch in &chosen {
            self.off.disarmed.remove(&patch.built.address);
        }
        let (old, new): (Vec<TextRange>, Vec<Patch>) = match armed {
            true => (Vec::new(), chosen.iter().copied().cloned().collect()),
            false => (chosen.iter().flat_map(|patch| ranges(patch)).collect(), Vec::new()),
        };
        let (old, new) = (old.as_slice(), new.as_slice());
        let mut is_written = true;
        // Text that is no longer mapped, or that another program has changed, stays as it is: detaching looks at each
        // place.
        let mut groups = Groups::default();
        self.beside.begin();
        if self.parameters.stop == StopPolicy::Always {
            let writes = Writes::without_springboards(old, new);
            let mut stopped = self.process.stop()?;
            self.write_at_once(&writes, (old, new), &mut groups, &mut stopped)?;
            done.pauses.add_whole(stopped.release());
        } else {
            is_written = self.write_by_protocol(old, new, &[], &mut groups, &mut done.pauses)?;
        }
        self.beside.complete();
        if !armed || !is_written {
            self.off.disarmed.extend(chosen.iter().map(|patch| patch.built.address));
        }
        Ok(done)
    }

    /// Leaves out patches that cannot be written, or taken back, without another patch that shares bytes with them.
    pub(crate) fn keep_together<P: Borrow<Patch>>(&self, armed: bool, chosen: &mut Vec<P>) {
        self.keep_together_of(&self.patches, armed, chosen);
    }

    /// The same among these patches.
    fn keep_together_of<P: Borrow<Patch>>(&self, all: &[Patch], armed: bool, chosen: &mut Vec<P>) {
        let address = |patch: &P| patch.borrow().built.address;
        let changes: HashSet<TargetAddress> = chosen.iter().map(address).collect();
        let there = all.iter().filter(|patch| !self.is_disarmed(patch));
        let there: HashSet<TargetAddress> = there.map(|patch| patch.built.address).collect();
        let links = Links::of(all);
        let left = if armed {
            links.torn(|successor| there.contains(&successor) || changes.contains(&successor))
        } else {
            links.held(|patch| there.contains(&patch) && !changes.contains(&patch))
        };
        chosen.retain(|patch| !left.contains(&address(patch)));
    }

    /// Takes back the patches that can be taken back before all threads are stopped: all sites, unless they are few.
    ///
    /// # Errors
    /// The target cannot be stopped or written; the rest is taken back in the stop.
    pub(crate) fn disarm_before_stop(&mut self, pauses: &mut Pauses) -> Result<usize, SessionError> {
        let sites = self.patches.iter().filter(|patch| !patch.shim);
        let few = self.parameters.stop == StopPolicy::Auto && are_few_pages(&[], sites);
        if few || self.parameters.stop == StopPolicy::Always {
            return Ok(0);
        }
        let gone = self.change_armed(false, &mut |_| true)?;
        pauses.add(&gone.pauses);
        Ok(gone.patches)
    }

    /// Whether a patch is out of the text for the time being.
    pub fn is_disarmed(&self, patch: &Patch) -> bool {
        self.off.disarmed.contains(&patch.built.address)
    }

    /// Writes everything while all threads are stopped.
    fn write_at_once(
        &self,
        writes: &Writes,
        all: (&[TextRange], &[Patch]),
        groups: &mut Groups,
        stopped: &mut Stopped,
    ) -> Result<(), SessionError> {
        let memory = self.process.memory();
        for pieces in [&writes.springboards, &writes.text] {
            let wanted = pieces.iter().filter(|piece| groups.has(piece.address.0));
            let left_out = exchange(memory, wanted)?;
            groups.lose_pieces(pieces, &left_out, all.0, all.1);
        }
        move_threads(&writes.moves, stopped)
    }

    /// See the module's description. False: an end was requested, and nothing was written. Patches that are taken
    /// back or replaced are always written.
    fn write_by_protocol(
        &self,
        old: &[TextRange],
        new: &[Patch],
        springboards: &[TextRange],
        groups: &mut Groups,
        pauses: &mut Pauses,
    ) -> Result<bool, SessionError> {
        let ranges = new.iter().flat_map(ranges).chain(springboards.iter().cloned());
        let ranges: Vec<TextRange> = ranges.collect();
        let change = Change::new(old, &ranges).with_moves(Moves::new(new));
        drop(ranges);
        if old.is_empty() && interrupt::requested() {
            return Ok(false);
        }
        let mut whole = Whole { groups, old, new };
        let done = change.carry_out(&mut ProcessText::of(self, pauses), &mut whole);
        done.map_err(|failure| failure.error)
    }

    /// Publishes the patches from index `first` on: entries first, then their number. If these are the first patches,
    /// the state comes last.
    fn publish_sites(&mut self, first: usize) -> Result<(), SessionError> {
        let patches = self.patches.get(first..).unwrap_or_default().iter();
        let sites: Vec<Site> = patches
            .flat_map(|patch| springboard_sites(patch).chain([site_of(patch)]))
            .collect();
        self.publish_entries(&sites)
    }

    fn publish_entries(&mut self, sites: &[Site]) -> Result<(), SessionError> {
        let memory = self.memory()?;
        let before = self.tables.sites;
        if before + sites.len() as u64 > u64::from(SITES_MAX) {
            return Err(SessionError::TooManySites);
        }
        for (index, site) in sites.iter().enumerate() {
            let offset = self.layout.sites_offset + (before + index as u64) * Site::BYTES as u64;
            memory.write_structure(offset, site)?;
        }
        let count = before + sites.len() as u64;
        memory.store_u32(offset_of!(Control, site_count) as u64, count as u32)?;
        if memory.load_u32(offset_of!(Control, state) as u64)? == STATE_BUILDING {
            ControlBlock::open(memory)?.set_state(STATE_ARMED)?;
        }
        self.tables.sites = count;
        Ok(())
    }
}
