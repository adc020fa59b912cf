//! Other tracers of the same process: what their arenas say, what we need of them, and what they need of us.
//!
//! The first tracer that patches a process is the *host*: its agent handles the signals, and its shims watch the masks.
//! A later one is a *guest*: its agent is called by the host's ([`crate::signals::guests`]). Where both want the same
//! site, the later patch is *stacked*: its detour ends with the jump that stood there (`placement/stacked.rs`). So a
//! tracer may be needed after its end. It then takes back what it can, and leaves the rest, which counts for nobody, to
//! the last tracer. docs/design/several-tracers.md has the argument.
//!
//! The process may have forged all that is read here. It can keep tracers out, and falsify what is recorded about
//! itself: every byte of text that is written was compared first.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Range;

use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{
    Control, Emulation, GUESTS, Image, MAGIC, REDIRECT_EMULATION, REGION_CODE, REGION_TABLE, Region, SLOT_TRAP,
    STATE_BUILDING, Site, TABLE_ROWS, Tables, VERSION,
};
use nanoprobe_patch::{BREAKPOINT, TargetAddress};
use nanoprobe_target::{Map, Mapping, Memory, Process};

use crate::detach::remains::{self, Own};
use crate::detach::unmapping;
use crate::error::SessionError;
use crate::layout::SITES_MAX;
use crate::occupied::{Home, Occupied, is_silent, is_stacked, jump_to};

/// The bytes that are read of an instruction.
const INSTRUCTION_BYTES_MAX: usize = 15;
/// The length and the older table, before the entries of a table of redirects.
const TABLE_HEAD_BYTES: u64 = 16;
const ENTRY_BYTES: u64 = 16;

/// How many sites all arenas of a process may list: so much memory, and so much time, may a process that forges its
/// tables cost.
const SITES_TOTAL_MAX: usize = SITES_MAX as usize;
/// Up to this many sites, [`Others::living_need`] answers.
const SITES_SHOWN_MAX: usize = 1 << 19;
/// How many arenas of one process are looked at: a host and its guests.
pub(crate) const ARENAS_MAX: usize = GUESTS + 1;

/// Another tracer's arena.
pub(crate) struct Other {
    pub head: Control,
    /// Where the arena lies.
    pub address: u64,
    /// Whether its tracer runs.
    pub is_live: bool,
    pub sites: Vec<Site>,
    regions: Vec<Region>,
}

/// The other tracers of a process.
#[derive(Default)]
pub(crate) struct Others(Vec<Other>);

/// The agent that handles the signals for all tracers of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Its arena.
    pub arena: u64,
    /// Its thread table.
    pub table: u64,
    /// Its image.
    pub image: u64,
}

impl Others {
    /// The arenas of other tracers. `ours`: where our own arena lies.
    ///
    /// # Errors
    /// The map cannot be read, or nanoprobe cannot find out whether the tracers live.
    pub fn of(process: &Process, ours: Option<TargetAddress>) -> Result<Others, SessionError> {
        let (map, pid) = (process.map()?, process.pid());
        let is_child = |head: &Control| remains::is_child(process, head);
        let is_live = |mapping: &Mapping| remains::is_held(pid, mapping);
        Others::read(process.memory(), &map, (pid, ours), &is_child, &is_live)
    }

    /// As [`Others::of`], of the process with this memory and this map. `is_child`: whether it was forked from the
    /// process that the arena names. `is_live`: whether the tracer of an arena runs.
    pub fn read(
        memory: &Memory,
        map: &Map,
        (pid, ours): (i32, Option<TargetAddress>),
        is_child: &dyn Fn(&Control) -> bool,
        is_live: &dyn Fn(&Mapping) -> Result<bool, SessionError>,
    ) -> Result<Others, SessionError> {
        let mut all = Vec::new();
        let mut sites = 0;
        let mappings = map.mappings();
        let starts = mappings.iter().enumerate();
        let starts = starts.filter(|(_, mapping)| unmapping::is_arena(mapping) && mapping.offset == 0);
        for (index, mapping) in starts.filter(|(_, mapping)| Some(mapping.start) != ours) {
            let found = remains::found(memory, mappings.get(index..).unwrap_or_default());
            // A tracer maps the arenas of its targets, too, but at other addresses.
            let Some(found) = found.filter(remains::Found::describes_itself) else {
                continue;
            };
            let is_live = is_live(mapping)?;
            let (head, address) = (found.head, found.start);
            let remains = remains::read(memory, &found.told(), is_child(&head))?;
            sites += remains.sites.len();
            if sites > SITES_TOTAL_MAX {
                return Err(SessionError::TooManyTracers { pid });
            }
            all.push(Other {
                head,
                address,
                is_live,
                sites: remains.sites,
                regions: remains.regions,
            });
            if all.len() == ARENAS_MAX {
                break;
            }
        }
        Ok(Others(all))
    }

    /// All of them.
    pub fn list(&self) -> &[Other] {
        &self.0
    }

    pub fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that another tracer may come.
    ///
    /// # Errors
    /// A tracer of another version lives; or one that is attaching; or there are too many.
    pub fn check(&self, pid: i32) -> Result<(), SessionError> {
        for other in self.0.iter().filter(|other| other.is_live) {
            let tracer = other.head.tracer_pid;
            match (other.head.version == VERSION, other.head.state == STATE_BUILDING) {
                (false, _) => return Err(SessionError::TracerLives { pid, tracer }),
                (true, true) => return Err(SessionError::TwoTracers { pid }),
                (true, false) => {}
            }
        }
        match self.0.len() >= ARENAS_MAX {
            true => Err(SessionError::TooManyTracers { pid }),
            false => Ok(()),
        }
    }

    /// The agent that handles the process's signals; `None`: no other one does yet.
    pub fn host(&self, memory: &Memory) -> Option<Host> {
        let handles = |other: &&Other| {
            other.head.version == VERSION && other.head.host == 0 && other.head.action_mask & 1 << SLOT_TRAP != 0
        };
        self.0.iter().filter(handles).find_map(|other| other.as_host(memory))
    }

    /// Whether there is an arena at this address.
    pub fn has(&self, arena: u64) -> bool {
        self.0.iter().any(|other| other.address == arena)
    }

    /// The host at this address of an arena.
    pub fn host_at(&self, arena: u64, memory: &Memory) -> Option<Host> {
        let mut all = self.0.iter();
        all.find(|other| other.address == arena && arena != 0)?.as_host(memory)
    }

    /// The patches that are in the text.
    pub fn occupied(&self, memory: &Memory) -> Occupied {
        Occupied::of(self.0.iter().flat_map(|other| &other.sites), memory)
    }

    /// Whether another tracer needs this one, running or not: it is a guest of it, or has a patch that is stacked on
    /// one of its patches, or that lies in its detours.
    pub fn need(&self, own: &Own<'_>) -> bool {
        self.needing(own).next().is_some()
    }

    /// The number of a running tracer that needs this one, or needs a dead one that needs this one, and so on. The
    /// number is only shown to people. If the tables are so large that the search takes long, there is no answer.
    pub fn living_need(&self, own: &Own<'_>) -> Option<u32> {
        let sites = self.0.iter().map(|other| other.sites.len()).sum::<usize>();
        if sites > SITES_SHOWN_MAX {
            return None;
        }
        let kept = self.kept();
        let needing = self.needing(own).find_map(|other| kept.get(&other.address));
        needing.copied()
    }

    /// The arenas that are there for a running tracer, with its number: its own, those that it needs, and so on.
    fn kept(&self) -> BTreeMap<u64, u32> {
        let living = self.0.iter().filter(|other| other.is_live);
        let mut kept: BTreeMap<u64, u32> = living.map(|other| (other.address, other.head.tracer_pid)).collect();
        loop {
            let find = |other: &Other| {
                let own = other.own();
                let needing = self.needing(&own).find_map(|above| kept.get(&above.address).copied());
                Some((other.address, needing?))
            };
            let mut rest = self.0.iter().filter(|other| !kept.contains_key(&other.address));
            let Some((address, tracer)) = rest.find_map(find) else {
                return kept;
            };
            kept.insert(address, tracer);
        }
    }

    fn needing<'a>(&'a self, own: &'a Own<'_>) -> impl Iterator<Item = &'a Other> {
        let below: BTreeMap<u64, &Site> = own.sites.iter().map(|site| (site.address, site)).collect();
        let is_guest = move |other: &Other| own.arena != 0 && other.host() == own.arena;
        let is_on = move |other: &Other, site: &Site| {
            let below = below.get(&site.address);
            below.is_some_and(|below| other.is_above(site, own, below)) || own.has_code(site.address)
        };
        let others = self.0.iter().filter(move |other| other.address != own.arena);
        others.filter(move |other| is_guest(other) || other.sites.iter().any(|site| is_on(other, site)))
    }

    /// Takes those of `sites` away on which another tracer's patch is stacked, or in whose detours one lies.
    pub fn keep_covered(&self, own: &Own<'_>, sites: &mut Vec<Site>) {
        let others = self.0.iter().filter(|other| other.address != own.arena);
        let all = others.flat_map(|other| other.sites.iter().map(move |site| (other, site)));
        let mut above: BTreeMap<u64, Vec<(&Other, &Site)>> = BTreeMap::new();
        let mut inside = false;
        for (other, site) in all {
            above.entry(site.address).or_default().push((other, site));
            inside |= own.has_code(site.address);
        }
        // Which patch leads to the place in a detour is not looked for.
        let is_covered = |site: &Site| {
            let above = above.get(&site.address).into_iter().flatten();
            inside || above.into_iter().any(|(other, above)| other.is_above(above, own, site))
        };
        sites.retain(|site| !is_covered(site));
    }

    /// Where instructions at these addresses are now that other tracers' patches have displaced.
    pub fn homes(
        &self,
        memory: &Memory,
        wanted: impl Iterator<Item = TargetAddress>,
        asked: &Asked,
    ) -> BTreeMap<TargetAddress, Home> {
        let table = |function: &u64| {
            let mut others = self.0.iter();
            others.find(|other| other.own().has_code(*function))?.redirects(memory)
        };
        let tables = |functions: &[u64]| functions.iter().filter_map(table).collect::<Vec<Redirects>>();
        let (before, after) = (tables(&asked.before), tables(&asked.after));
        let is_others = |address: &TargetAddress| self.0.iter().any(|other| other.own().has_code(address.0));
        let find = |tables: &[Redirects], address: TargetAddress| {
            let mut tables = tables.iter();
            tables
                .find_map(|table| table.of_address(address, memory))
                .filter(is_others)
        };
        let home = |wanted: TargetAddress| {
            let earlier = find(&before, wanted);
            let address = earlier.or_else(|| find(&after, wanted))?;
            let mut code = vec![0; INSTRUCTION_BYTES_MAX];
            let read = memory.read_some(address, &mut code).ok()?;
            code.truncate(read);
            let first = *code.first()?;
            let touches = |site: &&Site| site.address.wrapping_sub(address.0) < INSTRUCTION_BYTES_MAX as u64;
            let mut there = self.0.iter().flat_map(|other| &other.sites).filter(touches);
            if let Some(site) = there.next() {
                // Another tracer traps there.
                if site.address != address.0 || first != BREAKPOINT || find(&before, address).is_some() {
                    return None;
                }
                code = jump_to(address, find(&after, address)?)?.to_vec();
            }
            Some(Home {
                address,
                code,
                first,
                is_asked_before: earlier.is_some(),
            })
        };
        wanted.filter_map(|address| Some((address, home(address)?))).collect()
    }
}

/// The agents that are asked when a thread traps, in their order: for each a function of it.
pub(crate) struct Asked {
    /// Before ours: where one of these traps, we see nothing.
    pub before: Vec<u64>,
    /// After ours.
    pub after: Vec<u64>,
}

impl Other {
    /// It, as one that another tracer may need.
    pub fn own(&self) -> Own<'_> {
        Own {
            arena: self.address,
            began_ns: self.head.clock_ns,
            regions: &self.regions,
            sites: &self.sites,
        }
    }

    /// Whether a patch of it is stacked on a patch of `own`. Two traps over a third one are alike; the later one is on
    /// top.
    fn is_above(&self, site: &Site, own: &Own<'_>, below: &Site) -> bool {
        is_stacked(site, below) && !(is_silent(site) && is_silent(below) && self.head.clock_ns <= own.began_ns)
    }

    /// The table by which its agent sends on threads that trap.
    fn redirects(&self, memory: &Memory) -> Option<Redirects> {
        let host = self.as_host(memory)?;
        let mut image = vec![0; Image::BYTES];
        memory.read(TargetAddress(host.image), &mut image).ok()?;
        Redirects::of(memory, &Image::from_bytes(&image)?)
    }

    fn as_host(&self, memory: &Memory) -> Option<Host> {
        let of_kind = |kind: u32| self.regions.iter().find(|region| region.kind == kind);
        let (table, code) = (of_kind(REGION_TABLE)?.address, of_kind(REGION_CODE)?.address);
        let mut image = vec![0; Image::BYTES];
        memory.read(TargetAddress(code), &mut image).ok()?;
        let image = Image::from_bytes(&image)?;
        let is_whole = image.magic == MAGIC && image.control == self.address && image.table == table;
        is_whole.then_some(Host {
            arena: self.address,
            table,
            image: code,
        })
    }

    /// Its host; 0: it has none.
    fn host(&self) -> u64 {
        if self.head.version == VERSION {
            self.head.host
        } else {
            0
        }
    }
}

/// The code of all tracers of a process. Where that is not known, none.
pub(crate) fn code_of_tracers(process: &Process) -> Vec<Range<u64>> {
    let is_child = |head: &Control| remains::is_child(process, head);
    // Whether they live does not matter here. Reading /proc/locks waits for a grace period of the kernel's RCU, which
    // takes seconds on a busy machine, and meanwhile a program that has loaded a library takes the tracer for dead.
    let read = |map| Others::read(process.memory(), &map, (process.pid(), None), &is_child, &|_| Ok(true)).ok();
    let others = process.map().ok().and_then(read).unwrap_or_default();
    let regions = others.0.iter().flat_map(|other| &other.regions);
    let code = regions.filter(|region| region.kind == REGION_CODE);
    code.map(|region| region.address..region.address.saturating_add(region.bytes))
        .collect()
}

impl Host {
    /// The agent's image, to which the host's signal frames return.
    pub fn image_range(&self) -> Range<u64> {
        self.image..self.image.saturating_add(nanoprobe_agent::IMAGE.len() as u64)
    }

    /// Where the list of guests lies.
    pub fn guests(&self) -> TargetAddress {
        TargetAddress(self.image.saturating_add(offset_of!(Image, guests) as u64))
    }
}

/// The detour of a trap whose instruction the agent emulates.
fn detour_of(emulation: TargetAddress, memory: &Memory) -> Option<TargetAddress> {
    let field = emulation.0.checked_add(offset_of!(Emulation, detour) as u64)?;
    let distance = i32::from_le_bytes(memory.read_array(TargetAddress(field)).ok()?);
    let place = (field.checked_add(size_of::<i32>() as u64)?).checked_add_signed(distance.into())?;
    (distance != 0).then_some(TargetAddress(place))
}

/// Another agent's current table of redirects.
struct Redirects {
    /// Where its entries lie: pairs of addresses, by the first of them.
    entries: u64,
    count: u64,
}

impl Redirects {
    fn of(memory: &Memory, image: &Image) -> Option<Redirects> {
        let mut rows = vec![0; TABLE_ROWS as usize];
        memory.read(TargetAddress(image.rows), &mut rows).ok()?;
        // The last row whose byte is set is current; the first one always exists.
        let row = rows.iter().skip(1).take_while(|byte| **byte != 0).count() as u64;
        let mut bytes = vec![0; Tables::BYTES];
        let at = image.tables.checked_add(row * Tables::BYTES as u64)?;
        memory.read(TargetAddress(at), &mut bytes).ok()?;
        let table = Tables::from_bytes(&bytes)?.redirects;
        let count = memory.read_u64(TargetAddress(table)).ok()?;
        Some(Redirects {
            entries: table.checked_add(TABLE_HEAD_BYTES)?,
            count,
        })
    }

    /// Where a thread continues that has trapped at an address; `None`: at the instruction itself, or nowhere.
    fn of_address(&self, address: TargetAddress, memory: &Memory) -> Option<TargetAddress> {
        let entry = |index: u64| {
            let at = self.entries.checked_add(index.checked_mul(ENTRY_BYTES)?)?;
            let from = memory.read_u64(TargetAddress(at)).ok()?;
            Some((from, at))
        };
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let (from, at) = entry(middle)?;
            match from.cmp(&address.0) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => {
                    let to = memory.read_u64(TargetAddress(at.checked_add(8)?)).ok()?;
                    return match to & REDIRECT_EMULATION == 0 {
                        true => Some(TargetAddress(to)),
                        false => detour_of(TargetAddress(to & !REDIRECT_EMULATION), memory),
                    };
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use nanoprobe_arena::layout::TACTIC_JUMP;
    use nanoprobe_arena::layout::TACTIC_RUN;

    use super::*;
    use crate::site_table;

    fn site(address: u64, original: &[u8], patched: &[u8], tactic: u32) -> Site {
        site_table::site(TargetAddress(address), original, patched, tactic)
    }

    fn other(address: u64, sites: Vec<Site>) -> Other {
        Other {
            head: Control::default(),
            address,
            is_live: true,
            sites,
            regions: Vec::new(),
        }
    }

    const FIRST: [u8; 5] = [0xe9, 1, 2, 3, 4];
    const SECOND: [u8; 5] = [0xe9, 5, 6, 7, 8];

    #[test]
    fn a_patch_is_needed_by_the_one_that_is_stacked_on_it() {
        let first = site(0x1000, &[0x55, 0x48, 0x89, 0xe5, 0x5d], &FIRST, TACTIC_RUN);
        let second = site(0x1000, &FIRST, &SECOND, TACTIC_JUMP);
        let trap = site(0x2000, &[0x55], &[0xcc], 0);
        let others = Others(vec![other(1, vec![first, trap]), other(2, vec![second])]);
        let (first_has, second_has) = ([first, trap], [second]);
        let own = |arena, sites| Own {
            arena,
            began_ns: 0,
            regions: &[],
            sites,
        };
        assert!(others.need(&own(1, &first_has)));
        assert!(!others.need(&own(2, &second_has)));
        let mut sites = vec![first, trap];
        others.keep_covered(&own(1, &first_has), &mut sites);
        assert_eq!(sites, [trap]);
        let code = [Region {
            address: 0x2000,
            bytes: 0x100,
            kind: REGION_CODE,
            reserved: 0,
        }];
        let detours = Own {
            regions: &code,
            ..own(2, &second_has)
        };
        assert!(others.need(&detours), "a trap lies in its detours");
    }
}
