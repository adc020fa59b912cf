//! Every target over its kept corpus and over mutations of it, for a few seconds and with bounded
//! memory, by stable Rust.
//!
//! `NANOPROBE_FUZZ=SECONDS` fuzzes each target for that time; `NANOPROBE_FUZZ_SEED=N` sets the seed. A failing input is
//! kept, and the message says where.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::{
    Context, Control, Image, MAGIC, REGION_CODE, REGION_RETURNS, REGION_TABLE, RETURN_ARMED, RETURN_POOL_INSTANCES,
    Region, ReturnInstance, Returns, SEMAPHORE_RAISED, SLOT_TRAP, STATE_ARMED, Semaphore, Site, TACTIC_HOST,
    TACTIC_SHIM, TACTIC_SPRINGBOARD, VERSION,
};
use nanoprobe_arena::{Bytes, ContextPlan, ControlBlock, DynamicVariables, Memory as _};
use nanoprobe_fuzz::{ARENA, PIECES, POOL, TARGETS, Target};
use nanoprobe_session::ToldOfOthers;

/// The maximal memory that one input may take. All inputs are small.
const BYTES_MAX: usize = 64 << 20;
/// The size beyond which inputs do not grow.
const INPUT_BYTES_MAX: usize = 256 << 10;
/// An input that takes longer counts as endless.
const INPUT_TIME: Duration = Duration::from_secs(120);
/// For how long each target is fuzzed in an ordinary test.
const SECONDS: u64 = 2;
/// The least number of mutations, however slow the machine is, and the most in an ordinary test.
const MUTATIONS: std::ops::Range<u64> = 20..4000;

/// Counts the allocated bytes.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn counted(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call is the system allocator's with the same arguments; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        counted(layout.size());
        // SAFETY: the caller keeps the rules of `alloc`, which are those of the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        counted(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        counted(bytes);
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `block` is the system allocator's, since all blocks are; the caller guarantees the rest.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Changes an input in one of the ways that find most defects.
    fn change(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        const NUMBERS: [u64; 10] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff_ffff, 1 << 31, 1 << 63, u64::MAX];
        let at = self.below(input.len());
        match self.below(8) {
            0 => input
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= 1 << self.below(8)),
            1 => input
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte = self.next() as u8),
            2..=4 => {
                let number = NUMBERS[self.below(NUMBERS.len())]
                    .wrapping_add(self.next() % 3)
                    .wrapping_sub(1);
                let bytes = 1 << self.below(4);
                let at = if self.below(2) == 0 { at & !7 } else { at };
                for (to, from) in input.iter_mut().skip(at).zip(number.to_le_bytes()).take(bytes) {
                    *to = from;
                }
            }
            5 => input.truncate(at),
            6 => {
                let bytes = self.below(64).min(input.len() - at.min(input.len()));
                let piece: Vec<u8> = input[at.min(input.len())..][..bytes].to_vec();
                let to = self.below(input.len());
                input.splice(to..to, piece);
            }
            _ => {
                let from = self.below(other.len());
                let piece = &other[from.min(other.len())..];
                let piece = &piece[..piece.len().min(self.below(256))];
                let end = (at + piece.len()).min(input.len());
                input.splice(at.min(end)..end, piece.iter().copied());
            }
        }
        input.truncate(INPUT_BYTES_MAX);
    }
}

/// Arenas in the present layout. The layout changes with every version, and the kept inputs do not (`BLESS=1` writes
/// these anew).
fn arenas(name: &str) -> Vec<(&'static str, Vec<u8>)> {
    match name {
        "arena" => vec![("context", context())],
        "restore" => vec![("control", control(THUNKS)), ("thunks", control(u64::MAX - 8))],
        "tracers" => vec![("two", two_tracers())],
        _ => Vec::new(),
    }
}

/// A thread's context with records in its ring and an aggregation.
fn context() -> Vec<u8> {
    let plan = ContextPlan::new(256, 64, 64, 256, 256, 4096, 4096).unwrap();
    let memory = Bytes::zeroed(plan.stride as usize + 4096);
    plan.initialise(&memory, 0x7f00_0000_0000, 0, 1, 0).unwrap();
    let head = std::mem::offset_of!(Context, ring_head) as u64;
    let mut at = 0;
    for (epid, bytes) in [(1_u32, 32_u32), (2, 64), (1, 32)] {
        memory.store_u32(plan.ring + at, epid).unwrap();
        memory.store_u32(plan.ring + at + 4, bytes).unwrap();
        at += u64::from(bytes);
    }
    memory.store_u64(head, at).unwrap();
    DynamicVariables::new(plan.stride, 4096).initialise(&memory).unwrap();
    memory.copy(0, plan.stride + 4096).unwrap()
}

/// The address of the thunks of replaced return addresses.
const THUNKS: u64 = 0x40_6000;

/// A control block with sites of every kind, regions, a semaphore, and in its second half a pool of
/// replaced return addresses.
fn control(thunks: u64) -> Vec<u8> {
    const BYTES: usize = 32768;
    let memory = Bytes::zeroed(BYTES);
    let control = Control {
        magic: MAGIC,
        version: VERSION,
        arena_address: ARENA,
        arena_bytes: BYTES as u64,
        sites_offset: 8192,
        site_capacity: 8,
        regions_offset: 12288,
        region_capacity: 4,
        semaphores_offset: 14336,
        semaphore_capacity: 4,
        ..Control::default()
    };
    memory.write_structure(0, &control).unwrap();
    let block = ControlBlock::open(&memory).unwrap();
    for (address, tactic) in [
        (0x40_1000, 1),
        (0x40_1003, 1),
        (0x40_2000, TACTIC_SPRINGBOARD),
        (0x40_2100, TACTIC_HOST),
        (0x40_2ffd, TACTIC_SHIM),
    ] {
        let mut site = Site {
            address,
            length: 7,
            tactic,
            original: [0x90; 16],
            ..Site::default()
        };
        // The memory is all zeros, so patches of zeros are in place. A springboard contains a jump, so a springboard is
        // not in place.
        if tactic == TACTIC_SPRINGBOARD {
            site.patched[2] = 0xe9;
        }
        assert!(block.publish_site(&site).unwrap());
    }
    for (address, kind) in [(0x40_5000, REGION_CODE), (POOL, REGION_RETURNS)] {
        let region = Region {
            address,
            bytes: 4096,
            kind,
            reserved: 0,
        };
        assert!(block.publish_region(&region).unwrap());
    }
    let semaphore = Semaphore {
        address: 0x41_0010,
        site: 0x40_1000,
        state: SEMAPHORE_RAISED,
        ..Semaphore::default()
    };
    assert!(block.publish_semaphore(&semaphore).unwrap());
    let pool = BYTES as u64 / 2;
    let head = Returns {
        magic: MAGIC,
        version: VERSION,
        thunks,
        chunk_count: 1,
        ..Returns::default()
    };
    memory.write_structure(pool, &head).unwrap();
    let instance = ReturnInstance {
        state: RETURN_ARMED,
        slot: 0x41_0100,
        address: THUNKS,
        ..ReturnInstance::default()
    };
    for index in 0..2 {
        let at = pool + RETURN_POOL_INSTANCES + index * size_of::<ReturnInstance>() as u64;
        memory.write_structure(at, &instance).unwrap();
    }
    // The place of the thread.
    memory.store_u64(BYTES as u64 - 48, 0x40_5008).unwrap();
    memory.store_u64(BYTES as u64 - 40, 0x41_f000).unwrap();
    memory.copy(0, BYTES as u64).unwrap()
}

/// Two tracers: a host with a patch at 0x401000, and its guest with a patch over it and one in the host's code. The
/// host's table of redirects knows the instruction at 0x401003.
fn two_tracers() -> Vec<u8> {
    const PIECE: u64 = 16384;
    let [first, second, code] = PIECES;
    let memory = Bytes::zeroed(3 * PIECE as usize);
    let patch = |address, original: [u8; 5], patched: [u8; 5]| {
        let mut site = Site {
            address,
            length: 5,
            tactic: 1,
            ..Site::default()
        };
        site.original[..5].copy_from_slice(&original);
        site.patched[..5].copy_from_slice(&patched);
        site
    };
    let (jump, later) = ([0xe9, 1, 2, 3, 4], [0xe9, 5, 6, 7, 8]);
    let of_first = [patch(0x40_1000, [0x90; 5], jump)];
    let of_second = [patch(0x40_1000, jump, later), patch(code + 0x1000, [0; 5], later)];
    let tracers: [(u64, u64, &[Site]); 2] = [(0, first, &of_first), (PIECE, second, &of_second)];
    for (at, address, sites) in tracers {
        let control = Control {
            magic: MAGIC,
            version: VERSION,
            state: STATE_ARMED,
            arena_address: address,
            arena_bytes: PIECE,
            sites_offset: 8192,
            site_capacity: 8,
            site_count: sites.len() as u32,
            regions_offset: 12288,
            region_capacity: 4,
            region_count: 2,
            action_mask: u32::from(at == 0) << SLOT_TRAP,
            host: if at == 0 { 0 } else { first },
            clock_ns: 1 + at,
            ..Control::default()
        };
        memory.write_structure(at, &control).unwrap();
        for (site, place) in sites.iter().zip((at + 8192..).step_by(size_of::<Site>())) {
            memory.write_structure(place, site).unwrap();
        }
        let its_code = if at == 0 { code } else { code + (1 << 30) };
        let regions = [(its_code, REGION_CODE), (0x5000_0000_0000 + at, REGION_TABLE)];
        for ((address, kind), place) in regions.into_iter().zip((at + 12288..).step_by(size_of::<Region>())) {
            let region = Region {
                address,
                bytes: PIECE,
                kind,
                reserved: 0,
            };
            memory.write_structure(place, &region).unwrap();
        }
    }
    let mut image = Image {
        magic: MAGIC,
        control: first,
        table: 0x5000_0000_0000,
        tables: code + 0x800,
        rows: code + 0x900,
        ..Image::default()
    };
    image.guests[0] = code + (1 << 30) + 0x100;
    let at = 2 * PIECE;
    memory.write_structure(at, &image).unwrap();
    memory.store_u64(at + 0x800, code + 0xa00).unwrap();
    for (word, value) in [1, 0, 0x40_1003, code + 0x2000].into_iter().enumerate() {
        memory.store_u64(at + 0xa00 + 8 * word as u64, value).unwrap();
    }
    memory.copy(0, 3 * PIECE).unwrap()
}

/// The current input, for the watching thread: its start time, its target, and its bytes.
static RUNNING: Mutex<Option<(Instant, &'static str, Vec<u8>)>> = Mutex::new(None);
static WATCHED: Once = Once::new();
/// The counts of memory cover all threads: one target at a time.
static ONE: Mutex<()> = Mutex::new(());

fn running() -> MutexGuard<'static, Option<(Instant, &'static str, Vec<u8>)>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder in which a failing input is kept.
fn kept(name: &str, input: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("nanoprobe-fuzz-{name}-{}", std::process::id()));
    std::fs::write(&path, input).unwrap();
    path
}

fn try_one(name: &'static str, target: Target, input: &[u8]) {
    *running() = Some((Instant::now(), name, input.to_owned()));
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = catch_unwind(AssertUnwindSafe(|| target(input)));
    let taken = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    *running() = None;
    let path = || kept(name, input).display().to_string();
    assert!(result.is_ok(), "{name} fails on {}", path());
    assert!(taken <= BYTES_MAX, "{name} takes {} MiB for {}", taken >> 20, path());
}

/// Ends the process when one input takes too long: a hang is a failure with an input to examine.
fn watch() {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        if let Some((since, name, input)) = &*running()
            && since.elapsed() > INPUT_TIME
        {
            eprintln!("{name} does not end on {}", kept(name, input).display());
            std::process::abort();
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn fuzz(name: &'static str) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, target) = *TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(name);
    let made = arenas(name);
    if std::env::var_os("BLESS").is_some() {
        for (file, bytes) in &made {
            std::fs::write(folder.join(file), bytes).unwrap();
        }
    }
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = files.collect();
    paths.sort();
    let kept = paths.iter().map(|path| std::fs::read(path).unwrap());
    let corpus: Vec<Vec<u8>> = kept.chain(made.into_iter().map(|(_, bytes)| bytes)).collect();
    assert!(!corpus.is_empty());
    let begun = Instant::now();
    WATCHED.call_once(|| drop(std::thread::spawn(watch)));
    try_one(name, target, &[]);
    for input in &corpus {
        try_one(name, target, input);
    }
    let asked = number("NANOPROBE_FUZZ");
    let seconds = Duration::from_secs(asked.unwrap_or(SECONDS));
    let most = if asked.is_some() { u64::MAX } else { MUTATIONS.end };
    let mut random = Random(
        number("NANOPROBE_FUZZ_SEED")
            .unwrap_or(1)
            .wrapping_mul(2)
            .wrapping_add(1),
    );
    let mut tried = 0;
    while tried < most && (tried < MUTATIONS.start || begun.elapsed() < seconds) {
        let mut input = corpus[random.below(corpus.len())].clone();
        let other = &corpus[random.below(corpus.len())];
        for _ in 0..=random.below(6) {
            random.change(&mut input, other);
        }
        try_one(name, target, &input);
        tried += 1;
    }
    println!("{name}: {} kept inputs, {tried} mutations", corpus.len());
}

macro_rules! fuzzed {
    ($($name:ident $target:literal)*) => {$(
        #[test]
        fn $name() {
            fuzz($target);
        }
    )*};
}

fuzzed! {
    arenas_that_are_damaged_are_read_within_bounds "arena"
    any_d_text_is_compiled_or_refused "d_text"
    any_debug_information_is_read_or_refused "dwarf"
    any_call_frame_information_is_read_within_bounds "eh_frame"
    any_elf_file_is_read_or_refused "elf"
    any_format_prints_any_record "formats"
    any_list_of_the_kernels_symbols_is_read_within_bounds "kallsyms"
    any_notes_are_read_within_bounds "notes"
    any_perf_map_is_read_within_bounds "perf_map"
    any_profile_is_compared_or_refused "profile"
    arenas_that_are_damaged_are_restored_within_bounds "restore"
    any_memory_of_a_runtime_is_read_within_bounds "runtimes"
    any_tables_of_other_tracers_are_read_within_bounds "tracers"
}

/// Checks that the target really restores something: otherwise nothing would have been tested.
#[test]
fn a_made_arena_is_taken_back() {
    let detached = nanoprobe_fuzz::rehearsed(&control(THUNKS), false).unwrap();
    // The thread is in our code, so hosts and springboards stay.
    assert_eq!((detached.restored, detached.foreign, detached.damaged), (3, 0, 0));
    assert_eq!((detached.calls, detached.abandoned_calls), (0, 2));
    assert!(detached.left_bytes > 0);
}

/// As above: every question has an answer in these tables.
#[test]
fn two_made_tracers_are_told_apart() {
    let told = nanoprobe_fuzz::told(&two_tracers()).unwrap();
    let expected = ToldOfOthers {
        arenas: 2,
        sites: 3,
        guests: 1,
        homes: 1,
        needed: 1,
        covered: 1,
    };
    assert_eq!(told, expected);
}

#[test]
fn every_target_has_a_corpus_and_a_program_of_its_own() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let names = |of: &str| {
        let entries = std::fs::read_dir(folder.join(of)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    let known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names("corpus"), known);
    assert_eq!(names("fuzz_targets"), known);
    assert!(known.is_sorted());
}
