//! Other tracers' breakpoints among our patches, above all those of kernel uprobes (perf, bpftrace).
//!
//! The kernel puts its `int3` over the first byte of an instruction, and when the uprobe goes it writes the
//! *file's* byte there, whatever stood there before. In our jump that leaves a mixture of two instructions:
//!
//! ```text
//!   original   55 48 89 e5 41 54     push rbp; mov rbp, rsp; push r12
//!   patched    e9 37 d1 c6 06 54     jmp detour
//!   + uprobe   cc 37 d1 c6 06 54     a thread executes the kernel's copy of the push, and goes on at the next byte
//!   - uprobe   55 37 d1 c6 06 54     push rbp, and then anything
//! ```
//!
//! So the tracer looks at the text all the time. Where a foreign breakpoint stands in a patch, the patch's other
//! bytes are taken back by the usual protocol. When the breakpoint has gone, the patch is written again.
//!
//! A debugger's breakpoint is left alone: a debugger puts back the byte that it has found, which is our jump's.
//!
//! The time between two looks stays open: see docs/design/beside-uprobes.md.

mod pages;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use nanoprobe_patch::{BREAKPOINT, TargetAddress};
use nanoprobe_target::Pauses;
use nanoprobe_text::Patch;
use nanoprobe_text::together::Links;

use self::pages::{Pages, pages_of};
use crate::arming::ranges;
use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::others::Others;
use crate::site_table::site_of;

/// How often the text is looked at.
const PERIOD: Duration = Duration::from_millis(5);
/// How many pages of text are read in one look. A larger text takes several looks.
const PAGES_MAX: usize = 128;

/// For how long the text must be the original one before a patch is written again. The kernel removes a uprobe's
/// breakpoint twice, and the second time it may mistake our own breakpoint for it.
const QUIET: Duration = Duration::from_secs(1);

/// The tracer's knowledge of other programs' breakpoints.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    last: Option<Instant>,
    /// The patch at which the next look begins.
    cursor: usize,
    /// Patches that were taken out of the text to make room for a breakpoint, and since when the text is the
    /// original one.
    suspended: HashMap<TargetAddress, Option<Instant>>,
    /// Whether a change of the text was begun and not completed. Then a breakpoint in the text may be our own.
    unsure: bool,
    pub aborted: Aborted,
}

impl Beside {
    /// Notes that a change of the text begins.
    pub fn begin(&mut self) {
        self.unsure = true;
    }

    /// Notes that the change of the text is complete.
    pub fn complete(&mut self) {
        self.unsure = false;
    }
}

/// Restartable sequences that were aborted because of one of our traps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Aborted {
    /// How many sequences had been aborted when traps were last taken out.
    pub seen: u64,
    /// How far around the sequence the traps have been taken out so far.
    pub step: Extent,
}

/// How far around a sequence traps are taken out. Its place is unknown, but it lies near the address at which the
/// thread continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Extent {
    #[default]
    Function,
    Module,
    Everywhere,
}

/// Patches whose text another program has changed.
#[derive(Debug, Default)]
struct Affected {
    /// For each patch with foreign breakpoints, the addresses of these breakpoints.
    by_others: HashMap<TargetAddress, Vec<u64>>,
    /// The addresses of patches whose text was mapped anew.
    new: Vec<TargetAddress>,
}

impl Affected {
    fn is_empty(&self) -> bool {
        self.by_others.is_empty() && self.new.is_empty()
    }

    /// Adds a patch if its text was changed.
    fn add(&mut self, patch: &Patch, pages: &Pages) {
        if pages.holds(patch.built.address, &patch.built.patched) {
            return;
        }
        match found(patch, &mut |address| pages.byte_at(address)) {
            Found::Others(breakpoints) => {
                self.by_others.insert(patch.built.address, breakpoints);
            }
            Found::New => self.new.push(patch.built.address),
            Found::Ours | Found::Unknown => {}
        }
    }
}

/// The changes of a look: patches by address.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Patches that were taken out of the text.
    pub suspended: Vec<TargetAddress>,
    /// Patches that were written again.
    pub resumed: Vec<TargetAddress>,
}

/// The present contents of the text where a patch was written.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Ours,
    /// Bytes of the original text, and breakpoints at these addresses.
    Others(Vec<u64>),
    /// The original text in all of a patch of several bytes: a library was loaded again at its old place, and the
    /// program did not wait for the tracer. (A removed uprobe would have left the patch's other bytes.)
    New,
    /// Other bytes, beside which the patch cannot be written.
    Unknown,
}

impl Attachment {
    /// Looks for other programs' breakpoints, if it is time for that: in some of the patches, or with `all` in every
    /// patch.
    ///
    /// # Errors
    /// The target cannot be stopped or written. The next look finds the unchanged patches again.
    pub(crate) fn look_beside(&mut self, all: bool) -> Result<Changed, SessionError> {
        let now = Instant::now();
        let is_time = self.beside.last.is_none_or(|last| now.duration_since(last) >= PERIOD);
        if self.patches.is_empty() || self.beside.unsure || !(all || is_time) {
            return Ok(Changed::default());
        }
        self.beside.last = Some(now);
        let mut affected = self.affected(all);
        // Another tracer that is at work writes breakpoints, too.
        let claim = match affected.is_empty() && self.beside.suspended.is_empty() {
            true => None,
            false if all => Some(self.process.claim()?),
            false => match self.process.claim_now() {
                None => return Ok(Changed::default()),
                claim => claim,
            },
        };
        // Before and after the second look: a debugger takes its breakpoints away before it goes.
        let was_debugged = !affected.is_empty() && self.process.is_debugged();
        if !affected.is_empty() {
            affected = self.affected_by_strangers(&affected)?;
        }
        let mut changed = Changed::default();
        let has_others = !affected.by_others.is_empty() && !was_debugged && !self.process.is_debugged();
        let is_idle = self.beside.suspended.is_empty() && affected.new.is_empty();
        if has_others {
            changed.suspended = self.suspend(affected.by_others)?;
        }
        if !all && !is_idle {
            // The text holds neither a byte of these patches nor a foreign breakpoint, so they are written again at
            // once.
            let since = now.checked_sub(QUIET);
            self.off.disarmed.extend(&affected.new);
            self.beside
                .suspended
                .extend(affected.new.iter().map(|address| (*address, since)));
            changed.resumed = self.resume(now)?;
            changed.resumed.retain(|address| !affected.new.contains(address));
        }
        drop(claim);
        Ok(changed)
    }

    /// Patches in which other programs have changed bytes, from the cursor on, or with `all` among all patches.
    fn affected(&mut self, all: bool) -> Affected {
        let mut affected = Affected::default();
        let mut left = self.patches.len();
        while left > 0 {
            let (chosen, passed) = self.next_patches(left);
            let pages = Pages::of(&chosen, self.process.memory());
            chosen.iter().for_each(|patch| affected.add(patch, &pages));
            self.beside.cursor = (self.beside.cursor + passed) % self.patches.len();
            left -= passed;
            if !all {
                break;
            }
        }
        affected
    }

    /// The patches from the cursor on that lie in so many pages as are read at once, of the next `limit` patches, and
    /// how many patches were passed.
    fn next_patches(&self, limit: usize) -> (Vec<&Patch>, usize) {
        let (behind, from) = self.patches.split_at(self.beside.cursor.min(self.patches.len()));
        let (mut chosen, mut passed) = (Vec::new(), 0);
        let (mut pages, mut last) = (0, None);
        for patch in from.iter().chain(behind).take(limit) {
            if pages >= PAGES_MAX {
                break;
            }
            passed += 1;
            // A patch that must stay is not taken out for a breakpoint, and a patch that is out of the text does not
            // matter.
            if patch.stays() || self.is_disarmed(patch) {
                continue;
            }
            let touched = pages_of(patch);
            pages += touched.clone().filter(|page| last != Some(*page)).count();
            last = touched.last();
            chosen.push(patch);
        }
        (chosen, passed)
    }

    /// Looks at these patches again, while no other tracer is at work. Leaves out those on which another tracer's
    /// patch is stacked.
    fn affected_by_strangers(&self, before: &Affected) -> Result<Affected, SessionError> {
        let others = Others::of(&self.process, Some(self.addresses.arena))?;
        let own = self.own(&[]);
        let is_known = |address: &TargetAddress| before.by_others.contains_key(address) || before.new.contains(address);
        let mut affected = Affected::default();
        for patch in self.patches.iter().filter(|patch| is_known(&patch.built.address)) {
            let mut site = vec![site_of(patch)];
            others.keep_covered(&own, &mut site);
            if !site.is_empty() {
                affected.add(patch, &Pages::of(&[patch], self.process.memory()));
            }
        }
        Ok(affected)
    }

    /// Takes patches out of the text, except for the foreign breakpoints in them.
    fn suspend(&mut self, affected: HashMap<TargetAddress, Vec<u64>>) -> Result<Vec<TargetAddress>, SessionError> {
        let there = self.patches.iter().filter(|patch| !self.is_disarmed(patch));
        let torn = Links::of(there).torn(|successor| !affected.contains_key(&successor));
        let goes = |patch: &&Patch| {
            let address = patch.built.address;
            !patch.stays() && !self.is_disarmed(patch) && (affected.contains_key(&address) || torn.contains(&address))
        };
        let chosen: Vec<Patch> = self.patches.iter().filter(goes).cloned().collect();
        let kept: HashSet<u64> = affected.into_values().flatten().collect();
        let old: Vec<_> = chosen.iter().flat_map(ranges).collect();
        // A program that loads libraries meanwhile waits for the tracer.
        let _heartbeat = self.heartbeat();
        self.beside.begin();
        self.take_back_but(&old, &kept, &mut Pauses::default())?;
        self.beside.complete();
        let addresses: Vec<TargetAddress> = chosen.iter().map(|patch| patch.built.address).collect();
        self.off.disarmed.extend(&addresses);
        self.beside
            .suspended
            .extend(addresses.iter().map(|address| (*address, None)));
        Ok(addresses)
    }

    /// Writes patches again whose text has been the original one for a while.
    fn resume(&mut self, now: Instant) -> Result<Vec<TargetAddress>, SessionError> {
        let waiting = std::mem::take(&mut self.beside.suspended);
        let (mut chosen, mut suspended) = (Vec::new(), HashMap::new());
        for patch in self.patches.iter().filter(|patch| self.is_disarmed(patch)) {
            let address = patch.built.address;
            let Some(since) = waiting.get(&address) else { continue };
            let since = since.or(Some(now)).filter(|_| self.is_original(patch));
            suspended.insert(address, since);
            if since.is_some_and(|since| now.duration_since(since) >= QUIET) {
                chosen.push(patch.clone());
            }
        }
        self.beside.suspended = suspended;
        self.keep_together(true, &mut chosen);
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let addresses: Vec<TargetAddress> = chosen.iter().map(|patch| patch.built.address).collect();
        let _heartbeat = self.heartbeat();
        self.beside.begin();
        for address in &addresses {
            self.off.disarmed.remove(address);
        }
        let is_written = self.put_back_beside(&chosen, &mut Pauses::default())?;
        self.beside.complete();
        if !is_written {
            self.off.disarmed.extend(&addresses);
            let again = addresses.into_iter().map(|address| (address, None));
            self.beside.suspended.extend(again);
            return Ok(Vec::new());
        }
        self.beside.suspended.retain(|address, _| !addresses.contains(address));
        Ok(addresses)
    }
}

/// Compares a patch with the present text.
fn found(patch: &Patch, byte_at: &mut dyn FnMut(u64) -> Option<u8>) -> Found {
    let mut breakpoints = Vec::new();
    let (mut differs, mut is_new, mut count) = (false, true, 0);
    for range in ranges(patch) {
        let bytes = range.original.iter().zip(&range.patched);
        for (address, (original, patched)) in (range.address.0..).zip(bytes) {
            let byte = byte_at(address);
            count += 1;
            is_new &= byte == Some(*original);
            match byte {
                Some(byte) if byte == *patched => {}
                Some(BREAKPOINT) => breakpoints.push(address),
                Some(byte) if byte == *original => differs = true,
                _ => return Found::Unknown,
            }
        }
    }
    match differs || !breakpoints.is_empty() {
        true if is_new && count > 1 => Found::New,
        true => Found::Others(breakpoints),
        false => Found::Ours,
    }
}
