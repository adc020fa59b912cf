//! A program's text and memory map, before, during and after.
//!
//! The text is read through `/proc/PID/mem` and compared with the file that it is mapped from, byte for byte. Text
//! without a file (the vDSO) is compared with a snapshot.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The permissions as printed in the map: `r-xp`.
    pub permissions: String,
    /// Offset in the file.
    pub offset: u64,
    /// File, pseudo-name such as `[heap]`, or empty.
    pub path: String,
}

impl Mapping {
    /// Whether the mapping can be executed.
    pub fn is_executable(&self) -> bool {
        self.permissions.contains('x')
    }

    fn has_file(&self) -> bool {
        self.path.starts_with('/') && !self.path.starts_with("/memfd:") && !self.path.ends_with(" (deleted)")
    }
}

/// A byte of the text that differs from the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The address of the byte.
    pub address: u64,
    /// The file that is mapped there.
    pub path: String,
    /// The byte that should be there.
    pub expected: u8,
    /// The byte that is there.
    pub found: u8,
}

/// The number under which /proc shows a process's memory: its own number, or that of a thread if the main thread has
/// ended.
fn living(pid: i32) -> String {
    let is_alive = |tid: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let mut names = threads.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let own = pid.to_string();
    if is_alive(&own) {
        own
    } else {
        names.find(is_alive).unwrap_or(own)
    }
}

/// The memory map of a process; empty when it is gone.
pub fn maps(pid: i32) -> Vec<Mapping> {
    let text = std::fs::read_to_string(format!("/proc/{}/maps", living(pid))).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let trimmed = rest.trim_start();
        let (head, tail) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
        rest = tail;
        head
    };
    let (start, end) = word().split_once('-')?;
    let permissions = word().to_owned();
    let offset = word();
    let (_device, _inode) = (word(), word());
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: number(start)?,
        end: number(end)?,
        permissions,
        offset: number(offset)?,
        path: rest.trim().to_owned(),
    })
}

/// Reads memory of a process; `None` if the memory cannot be read.
pub fn read(pid: i32, address: u64, bytes: usize) -> Option<Vec<u8>> {
    let memory = File::open(format!("/proc/{}/mem", living(pid))).ok()?;
    let mut buffer = vec![0; bytes];
    memory.read_exact_at(&mut buffer, address).ok()?;
    Some(buffer)
}

/// Every byte of executable file mappings that differs from its file.
pub fn differences(pid: i32) -> Vec<Difference> {
    let mut all = Vec::new();
    for mapping in maps(pid)
        .iter()
        .filter(|mapping| mapping.is_executable() && mapping.has_file())
    {
        let bytes = (mapping.end - mapping.start) as usize;
        let Ok(file) = File::open(&mapping.path) else { continue };
        let mut expected = vec![0; bytes];
        // The mapping's last page may extend beyond the end of the file, and is zero there.
        let mut filled = 0;
        while let Ok(count @ 1..) = file.read_at(&mut expected[filled..], mapping.offset + filled as u64) {
            filled += count;
        }
        let Some(found) = read(pid, mapping.start, bytes) else {
            continue;
        };
        all.extend(compare(mapping.start, &mapping.path, &expected, &found));
    }
    all
}

fn compare(start: u64, path: &str, expected: &[u8], found: &[u8]) -> Vec<Difference> {
    let pairs = expected
        .iter()
        .zip(found)
        .enumerate()
        .filter(|(_, (expected, found))| expected != found);
    pairs
        .map(|(index, (&expected, &found))| Difference {
            address: start + index as u64,
            path: path.to_owned(),
            expected,
            found,
        })
        .collect()
}

/// The text and the memory map of a process before it was traced.
#[derive(Clone, Debug)]
pub struct Snapshot {
    maps: Vec<Mapping>,
    vdso: BTreeMap<u64, Vec<u8>>,
}

impl Snapshot {
    /// Takes a snapshot of a process that is not being traced.
    ///
    /// # Panics
    /// When its text already differs from its files.
    #[track_caller]
    pub fn take(pid: i32) -> Snapshot {
        let before = differences(pid);
        assert!(
            before.is_empty(),
            "the text differs before anything was probed: {}",
            describe(&before)
        );
        let maps = maps(pid);
        assert!(!maps.is_empty(), "process {pid} has no memory map");
        let vdso = maps
            .iter()
            .filter(|mapping| mapping.path == "[vdso]")
            .filter_map(|mapping| {
                Some((
                    mapping.start,
                    read(pid, mapping.start, (mapping.end - mapping.start) as usize)?,
                ))
            })
            .collect();
        Snapshot { maps, vdso }
    }

    /// Asserts that the text equals that of the files, that the vDSO is unchanged, and that nothing of ours is mapped.
    ///
    /// # Panics
    /// Naming the differences.
    #[track_caller]
    pub fn assert_restored(&self, pid: i32) {
        assert!(!maps(pid).is_empty(), "process {pid} is gone: the tracing killed it");
        let now = differences(pid);
        assert!(now.is_empty(), "the text differs from its files: {}", describe(&now));
        for (&start, expected) in &self.vdso {
            let found = read(pid, start, expected.len()).expect("the vDSO can be read");
            let differing = compare(start, "[vdso]", expected, &found);
            assert!(differing.is_empty(), "the vDSO differs: {}", describe(&differing));
        }
        let foreign: Vec<_> = maps(pid)
            .into_iter()
            .filter(|mapping| self.is_foreign(mapping))
            .collect();
        assert!(foreign.is_empty(), "left behind: {foreign:#x?}");
    }

    /// As [`Snapshot::assert_restored`]. Also asserts that the memory map is the same. Only for programs that map
    /// nothing themselves meanwhile.
    ///
    /// # Panics
    /// Naming what came and went.
    #[track_caller]
    pub fn assert_identical(&self, pid: i32) {
        self.assert_restored(pid);
        // The stack and the heap grow by themselves.
        let stable = |mapping: &&Mapping| mapping.path != "[stack]" && mapping.path != "[heap]";
        let now = maps(pid);
        let came: Vec<_> = now
            .iter()
            .filter(stable)
            .filter(|mapping| !self.maps.contains(mapping))
            .collect();
        let went: Vec<_> = self
            .maps
            .iter()
            .filter(stable)
            .filter(|mapping| !now.contains(mapping))
            .collect();
        assert!(
            came.is_empty() && went.is_empty(),
            "the map changed: came {came:#x?}, went {went:#x?}"
        );
    }

    /// Executable or shared memory that was not there before and has no file: programs of these tests map none.
    fn is_foreign(&self, mapping: &Mapping) -> bool {
        let shared = mapping.permissions.contains('s');
        (mapping.is_executable() || shared || mapping.path.contains("nanoprobe"))
            && !mapping.has_file()
            && !self.maps.contains(mapping)
    }
}

/// Whether any byte of the text differs from its file: probes are in place, or were left behind.
pub fn is_patched(pid: i32) -> bool {
    !differences(pid).is_empty()
}

/// Whether a tracer has declared that all of its patches are in place: the text itself changes while the program runs.
pub fn is_complete(pid: i32) -> bool {
    // `state` of struct np_control in agent/contract.h, and NP_STATE_COMPLETE.
    const STATE_OFFSET: u64 = 36;
    const COMPLETE: [u8; 4] = 3_u32.to_le_bytes();
    let is_arena = |mapping: &&Mapping| mapping.path.starts_with("/memfd:nanoprobe") && mapping.offset == 0;
    let arena = maps(pid).iter().find(is_arena).map(|mapping| mapping.start);
    arena.is_some_and(|start| read(pid, start + STATE_OFFSET, 4).as_deref() == Some(&COMPLETE))
}

/// The process that traces a process by ptrace now, 0 for none; `None` when the process is gone.
pub fn ptracer(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:")?.trim().parse().ok())
}

fn describe(differences: &[Difference]) -> String {
    let mut text = format!("{} bytes", differences.len());
    for difference in differences.iter().take(16) {
        let Difference {
            address,
            path,
            expected,
            found,
        } = difference;
        text += &format!("\n  {address:#x} in {path}: {expected:02x} expected, {found:02x} found");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_path_with_blanks() {
        let line = "7f00-7f10 r-xp 00001000 fe:00 1234      /tmp/a b (deleted)";
        let mapping = parse(line).expect("a mapping");
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f00, 0x7f10, 0x1000));
        assert_eq!(mapping.path, "/tmp/a b (deleted)");
        assert!(mapping.is_executable() && !mapping.has_file());
    }

    #[test]
    fn an_untouched_process_has_no_differences() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id() as i32;
        // Waits until the dynamic linker has mapped everything.
        while maps(pid)
            .iter()
            .filter(|mapping| mapping.is_executable() && mapping.has_file())
            .count()
            < 3
        {}
        let found = differences(pid);
        child.kill().expect("killing sleep");
        crate::in_time::EndsInTime::wait_in_time(&mut child).expect("reaping sleep");
        assert_eq!(found, []);
    }

    #[test]
    fn a_changed_byte_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id() as i32;
        while maps(pid)
            .iter()
            .filter(|mapping| mapping.is_executable() && mapping.has_file())
            .count()
            < 3
        {}
        let maps = maps(pid);
        let text = maps
            .iter()
            .find(|mapping| mapping.is_executable() && mapping.has_file())
            .expect("text");
        let memory = File::options()
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .expect("its memory");
        let old = read(pid, text.start + 100, 1).expect("a byte")[0];
        memory
            .write_all_at(&[old ^ 1], text.start + 100)
            .expect("writing the byte");
        let found = differences(pid);
        child.kill().expect("killing sleep");
        crate::in_time::EndsInTime::wait_in_time(&mut child).expect("reaping sleep");
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].address, found[0].expected, found[0].found),
            (text.start + 100, old, old ^ 1)
        );
    }
}
