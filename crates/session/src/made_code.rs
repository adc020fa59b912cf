//! Code that the target makes at run time, where nothing names it: executable memory that no file describes.
//!
//! Stacks show such a frame as `[jit]`. A return address that is not in such memory stays an address: it may be no code
//! at all. A process may end before its stacks are printed. So its memory is looked at from time to time, and all
//! ranges that were ever executable count.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nanoprobe_arena::ControlBlock;
use nanoprobe_arena::layout::Region;
use nanoprobe_target::{Map, Mapping, MappingKind, Process};
use nanoprobe_text::modules::Modules;

use crate::arena_memory::ArenaMemory;

/// The first time between two looks, and the longest one.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LAST_WAIT: Duration = Duration::from_secs(2);
/// A look takes at most this part of the time: the target cannot map memory while its map is written.
const WAIT_FACTOR: u32 = 200;
/// The same, while frames are printed that are not known.
const ONE_FACTOR: u32 = 10;
/// The most ranges that are kept.
const RANGES_MAX: usize = 1 << 16;

/// See the module's description.
pub(crate) struct MadeCode {
    /// The ranges by their start, each with its end: disjoint.
    ranges: BTreeMap<u64, u64>,
    /// The ranges of our own code, which is such memory, too.
    own: Vec<Range<u64>>,
    /// The arena, which lists the ranges of our own code.
    arena: Option<Arc<ArenaMemory>>,
    wait: Duration,
    next: Instant,
    /// When a look for one address may be next.
    next_for_one: Instant,
    /// A frame was shown as `[jit]`.
    is_shown: bool,
    has_advised: bool,
}

impl Default for MadeCode {
    fn default() -> MadeCode {
        MadeCode {
            ranges: BTreeMap::new(),
            own: Vec::new(),
            arena: None,
            wait: FIRST_WAIT,
            next: Instant::now(),
            next_for_one: Instant::now(),
            is_shown: false,
            has_advised: false,
        }
    }
}

impl MadeCode {
    /// Looks at the memory of a process, if that is due. `arena`: the arena that we have mapped in the process.
    pub(crate) fn look(&mut self, process: &Process, arena: Option<&Arc<ArenaMemory>>) {
        if self.arena.is_none() {
            self.arena = arena.cloned();
        }
        if Instant::now() >= self.next {
            let took = self.look_now(process);
            self.wait = (self.wait * 2).min(LAST_WAIT).max(took * WAIT_FACTOR);
            self.next = Instant::now() + self.wait;
        }
    }

    fn look_now(&mut self, process: &Process) -> Duration {
        let start = Instant::now();
        if let Ok(map) = process.map() {
            self.take(&map);
        }
        // After the map: the arena has a region before the process has it.
        if let Some(own) = self.arena.as_ref().and_then(own_code) {
            self.own = own;
        }
        let took = start.elapsed();
        self.next_for_one = Instant::now() + (took * ONE_FACTOR).max(FIRST_WAIT);
        took
    }

    fn take(&mut self, map: &Map) {
        for mapping in map.mappings().iter().filter(|mapping| is_made(mapping)) {
            let (mut start, mut end) = (mapping.start.0, mapping.end.0);
            // Ranges that touch it are merged with it.
            while let Some((low, high)) = self.ranges.range(..=end).next_back().map(|(low, high)| (*low, *high))
                && high >= start
            {
                self.ranges.remove(&low);
                (start, end) = (start.min(low), end.max(high));
            }
            if self.ranges.len() < RANGES_MAX {
                self.ranges.insert(start, end);
            }
        }
    }

    /// Whether an address is in memory that was executable. A process that lives is asked if it is not known.
    pub(crate) fn has(&mut self, address: u64, process: Option<&Process>) -> bool {
        if let Some(process) = process
            && !self.contains(address)
            && Instant::now() >= self.next_for_one
        {
            self.look_now(process);
        }
        self.contains(address)
    }

    fn contains(&self, address: u64) -> bool {
        let before = self.ranges.range(..=address).next_back();
        before.is_some_and(|(_, end)| address < *end) && !self.own.iter().any(|own| own.contains(&address))
    }

    /// Notes that a frame is shown without a name.
    pub(crate) fn note_shown(&mut self) {
        self.is_shown = true;
    }

    /// Advice on naming the frames that were shown without a name; once. `has_map`: `/tmp/perf-PID.map` exists.
    pub(crate) fn take_advice(&mut self, modules: &Modules, has_map: bool) -> Option<String> {
        if !self.is_shown || std::mem::replace(&mut self.has_advised, true) {
            return None;
        }
        Some(match (has_map, remedy(modules)) {
            (true, _) => {
                "[jit] in stacks is code that was made at run time, and that /tmp/perf-PID.map does not name".to_owned()
            }
            (false, remedy) => format!("[jit] in stacks is code that was made at run time, without names; {remedy}"),
        })
    }
}

/// The ranges of our own code in a process; `None` if the arena does not tell.
pub(crate) fn own_code(arena: &Arc<ArenaMemory>) -> Option<Vec<Range<u64>>> {
    let control = ControlBlock::open(arena.memory()).ok()?;
    let range = |region: &Region| region.address..region.address.saturating_add(region.bytes);
    Some(control.regions_ever().ok()?.iter().map(range).collect())
}

/// Whether a mapping is executable memory that no file describes, and not nanoprobe's own.
pub(crate) fn is_made(mapping: &Mapping) -> bool {
    const OWN: &str = "/memfd:nanoprobe-";
    mapping.permissions.execute
        && match &mapping.kind {
            MappingKind::Anonymous | MappingKind::Heap | MappingKind::Stack => true,
            MappingKind::Other(name) => name.starts_with("[anon"),
            MappingKind::File { path, deleted: true } => {
                let path = path.to_string_lossy();
                let is_memory = ["/memfd:", "/dev/zero", "/SYSV"]
                    .iter()
                    .any(|start| path.starts_with(start));
                is_memory && !path.starts_with(OWN)
            }
            _ => false,
        }
}

/// Makers of code by the start of a module's name, with what makes them write `/tmp/perf-PID.map`. By their own
/// documentation and source: .NET's "debugging and profiling" (`PerfMapEnabled`), PHP's `ZEND_JIT_DEBUG_PERF` (1 << 4),
/// LuaJIT's `lj_trace.c`.
const REMEDIES: [(&str, &str); 8] = [
    (
        "libjvm.so",
        "`jcmd PID Compiler.perfmap` (JDK 17 and later) or perf-map-agent gives it names",
    ),
    (
        "node",
        "node --perf-basic-prof --interpreted-frames-native-stack gives it names",
    ),
    (
        "libnode.so",
        "node --perf-basic-prof --interpreted-frames-native-stack gives it names",
    ),
    (
        "libcoreclr.so",
        "DOTNET_PerfMapEnabled=1 (before .NET 6: COMPlus_PerfMapEnabled=1) in its environment gives it names",
    ),
    (
        "libluajit",
        "a LuaJIT that was built with -DLUAJIT_USE_PERFTOOLS gives it names",
    ),
    (
        "luajit",
        "a LuaJIT that was built with -DLUAJIT_USE_PERFTOOLS gives it names",
    ),
    ("php", "php -d opcache.jit_debug=16 gives it names"),
    ("libphp", "opcache.jit_debug=16 in php.ini gives it names"),
];
const ANY_REMEDY: &str = "its maker may have an option to write /tmp/perf-PID.map: \
                          node --perf-basic-prof, java with perf-map-agent, php -d opcache.jit_debug=16, \
                          DOTNET_PerfMapEnabled=1, LuaJIT built with -DLUAJIT_USE_PERFTOOLS";

fn remedy(modules: &Modules) -> &'static str {
    let names = || modules.list().iter().map(nanoprobe_symbols::Module::name);
    let found = REMEDIES
        .iter()
        .find(|(start, _)| names().any(|name| name.starts_with(start)));
    found.map_or(ANY_REMEDY, |(_, remedy)| remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(lines: &str) -> MadeCode {
        let mut made = MadeCode::default();
        made.take(&Map::parse(lines.as_bytes()));
        made
    }

    #[test]
    fn executable_memory_without_a_file_is_made_code() {
        let of = |permissions: &str, rest: &str| {
            made(&format!("10000-11000 {permissions} 00000000 {rest}\n")).contains(0x10800)
        };
        assert!(of("r-xp", "00:00 0 "));
        assert!(of("rwxp", "00:00 0          [heap]"));
        assert!(of("r-xp", "00:00 0          [anon:v8]"));
        assert!(of("r-xs", "00:01 77         /memfd:doublemapper (deleted)"));
        assert!(of("r-xs", "00:01 77         /dev/zero (deleted)"));
        assert!(!of("rw-p", "00:00 0 "), "data");
        assert!(!of("r-xp", "fe:00 77         /usr/lib/libc.so.6"), "a file");
        assert!(!of("r-xp", "fe:00 77         /usr/lib/libold.so (deleted)"), "a file");
        assert!(
            !of("r-xs", "00:01 77         /memfd:nanoprobe-code (deleted)"),
            "our own"
        );
        assert!(!of("r-xp", "00:00 0          [vdso]"));
    }

    #[test]
    fn memory_that_was_ever_executable_counts() {
        let mut made = made("10000-12000 r-xp 00000000 00:00 0 \n20000-21000 r-xp 00000000 00:00 0 \n");
        made.take(&Map::parse(
            b"10000-11000 rw-p 00000000 00:00 0 \n11000-12000 r-xp 00000000 00:00 0 \n",
        ));
        assert!(made.contains(0x10000) && made.contains(0x11fff) && !made.contains(0x12000));
        assert!(made.contains(0x20000) && !made.contains(0xffff));
    }

    #[test]
    fn our_own_code_is_not_the_program_s() {
        let mut made = made("10000-20000 r-xp 00000000 00:00 0 \n");
        made.own.push(0x12000..0x13000);
        assert!(made.contains(0x11fff) && made.contains(0x13000));
        assert!(!made.contains(0x12000) && !made.contains(0x12fff));
    }
}
