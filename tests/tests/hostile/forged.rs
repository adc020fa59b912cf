//! A process that forges the tables of its first tracer, for those that come later: the list of guests, the host's
//! image, the sites, the regions, the redirects. It can keep tracers out, and falsify what they see of itself. The
//! tracers end by themselves, within bounds.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use nanoprobe_tests::command::{Finished, Running, run};
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::said_by_processes;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

const HOSTS: &str = "pid$target:a.out:called:entry { @ = count(); }";
/// Every instruction: at the first one a patch is stacked, and those inside of it were displaced.
const SECOND: &str = "pid$target:a.out:called: { @ = count(); } tick-100ms { exit(0); }";
/// The limit of writable memory of a tracer that comes later.
const MEMORY: &str = "--data=268435456";
const CODE: u32 = 1;
const NO_ADDRESS: u64 = 1 << 46;

/// What the process can write, and where its first tracer's tables are.
struct Memory {
    file: File,
    arena: u64,
    /// The image of the agent, which begins the code.
    image: u64,
}

/// Offsets in `struct np_control` (its frozen part), `struct np_region`, `struct np_site` and `struct np_image`.
const SITE_COUNT: u64 = 40;
const SITES: u64 = 48;
const REGION_COUNT: u64 = 56;
const REGIONS: u64 = 64;
const REGION_BYTES: u64 = 24;
const SITE_BYTES: u64 = 48;
const IMAGE_TABLES: u64 = 24;
const IMAGE_ROWS: u64 = 32;
const IMAGE_GUESTS: u64 = 152;
const GUESTS_MAX: u64 = 15;

impl Memory {
    fn of(pid: i32) -> Memory {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the map");
        let line = maps.lines().find(|line| line.contains("/memfd:nanoprobe-"));
        let start = line.and_then(|line| line.split('-').next()).expect("an arena");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"));
        let mut memory = Memory {
            file: file.expect("its memory"),
            arena: u64::from_str_radix(start, 16).expect("an address"),
            image: 0,
        };
        let code = memory.regions().find(|at| memory.u32(at + 16) == CODE);
        memory.image = memory.u64(code.expect("the code"));
        memory
    }

    fn regions(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.arena + self.u64(self.arena + REGIONS);
        (0..u64::from(self.u32(self.arena + REGION_COUNT))).map(move |index| first + index * REGION_BYTES)
    }

    fn sites(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.arena + self.u64(self.arena + SITES);
        (0..u64::from(self.u32(self.arena + SITE_COUNT))).map(move |index| first + index * SITE_BYTES)
    }

    fn u64(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).expect("its memory");
        u64::from_le_bytes(bytes)
    }

    fn u32(&self, at: u64) -> u32 {
        self.u64(at) as u32
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).expect("its memory");
    }

    fn set(&self, at: u64, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    /// The current table of redirects, if there is one.
    fn redirects(&self) -> Option<u64> {
        let rows = self.u64(self.image + IMAGE_ROWS);
        let is_last = |row: &u64| rows == 0 || self.u32(rows + row + 1) & 0xff == 0;
        let row = (0..).find(is_last).expect("a last row");
        let table = self.u64(self.u64(self.image + IMAGE_TABLES) + 16 * row);
        (table != 0).then_some(table)
    }
}

/// What the process does to the tables.
type Forgery = (&'static str, fn(&Memory));

const FORGERIES: [Forgery; 8] = [
    ("a list of guests that is full", |memory| {
        for guest in 0..GUESTS_MAX {
            memory.set(memory.image + IMAGE_GUESTS + 8 * guest, NO_ADDRESS + guest);
        }
    }),
    ("redirects without end", |memory| {
        memory.redirects().iter().for_each(|table| memory.set(*table, u64::MAX));
    }),
    ("redirects to nowhere", |memory| {
        if let Some(table) = memory.redirects() {
            for entry in 0..memory.u64(table).min(1000) {
                memory.set(table + 16 + 16 * entry + 8, NO_ADDRESS);
            }
        }
    }),
    ("tables at no address", |memory| {
        memory.set(memory.image + IMAGE_TABLES, u64::MAX - 8);
        memory.set(memory.image + IMAGE_ROWS, u64::MAX - 8);
    }),
    ("code everywhere", |memory| {
        for region in memory.regions().filter(|at| memory.u32(at + 16) == CODE) {
            memory.set(region, 0);
            memory.set(region + 8, u64::MAX);
        }
    }),
    ("patches of other bytes", |memory| {
        for site in memory.sites() {
            memory.write(site + 16, &[0xa5; 32]);
        }
    }),
    ("patches at one address", |memory| {
        let first = memory.sites().next().map(|site| memory.u64(site)).expect("a site");
        for site in memory.sites() {
            memory.set(site, first);
            memory.set(site + 8, u64::MAX >> 32 << 32 | 16);
        }
    }),
    ("more sites than there are", |memory| {
        memory.write(memory.arena + SITE_COUNT, &[0xff; 4])
    }),
];

/// Whatever it was told: it ends by itself, with a message if it fails.
#[track_caller]
fn assert_answered(what: &str, finished: &Finished) {
    let code = finished.code();
    assert!(code == 0 || code == 1, "{what}: {finished:?}");
    assert!(!finished.stderr.contains("panicked"), "{what}: {finished:?}");
    assert!(
        code == 0 || finished.stderr.contains("nanoprobe: "),
        "{what}: {finished:?}"
    );
}

/// A tracer that comes second, within little memory.
fn second(prlimit: &std::path::Path, target: &Running) -> Finished {
    let mut command = Command::new(prlimit);
    command.arg(MEMORY).arg(nanoprobe());
    run(command.args(["-n", SECOND, "-p", &target.pid().to_string()]))
}

#[test]
fn forged_tables_of_a_first_tracer_do_not_end_a_second_one() {
    let Some(prlimit) = need_command("tracers within little memory", "prlimit") else {
        return;
    };
    let forms = [Form::Default, Form::Trap];
    for (form, (what, forge)) in forms
        .into_iter()
        .flat_map(|form| FORGERIES.map(|forgery| (form, forgery)))
    {
        let target = start_waiting(&program("tree.c"), "fork 1 10");
        let host = Tracer::new(form).clause(HOSTS).trace(target.pid());
        forge(&Memory::of(target.pid()));
        let finished = second(&prlimit, &target);
        println!(
            "{what}: {} {}",
            finished.code(),
            finished.stderr.lines().last().unwrap_or_default()
        );
        assert_answered(what, &finished);
        // A full list keeps others out: so the second one has read what was forged.
        let is_kept_out = finished.stderr.contains("sixteen nanoprobes");
        assert_eq!(is_kept_out, what.contains("full"), "{what}: {finished:?}");
        // The first one ends, too, or is killed, and its remains are taken away as far as they are true.
        host.running.signal(Signal::SIGKILL);
        host.finish();
        assert_answered(
            what,
            &run(Command::new(nanoprobe()).args(["restore", &target.pid().to_string()])),
        );
        target.signal(Signal::SIGKILL);
        target.finish();
    }
}

/// The same without a forgery: the limit of memory is no obstacle, and the tables that are forged above are there.
#[test]
fn a_second_tracer_comes_and_goes_within_little_memory() {
    let Some(prlimit) = need_command("tracers within little memory", "prlimit") else {
        return;
    };
    let mut target = start_waiting(&program("tree.c"), "fork 1 10");
    let snapshot = Snapshot::take(target.pid());
    let host = Tracer::new(Form::Trap).clause(HOSTS).trace(target.pid());
    let memory = Memory::of(target.pid());
    let redirects = memory.redirects().map(|table| memory.u64(table));
    assert!(redirects > Some(0) && memory.sites().count() > 0, "{redirects:?}");
    let finished = second(&prlimit, &target);
    assert_eq!(finished.code(), 0, "{finished:?}");
    host.interrupt();
    snapshot.assert_restored(target.pid());
    target.go();
    assert_eq!(said_by_processes(&target.finish().success().stdout).len(), 2);
}
