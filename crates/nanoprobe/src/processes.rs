//! Processes by their names: what `-p NAME` means.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nanoprobe_lang::{glob, spelling};
use nanoprobe_target::proc_file;

/// The number of candidates that a message lists.
const LISTED_MAX: usize = 20;
/// The number of letters of a thread's name that the kernel keeps (TASK_COMM_LEN, without its NUL).
const KERNEL_NAME_MAX: usize = 15;
/// The number of letters of a command line that a message shows.
const COMMAND_SHOWN: usize = 60;

/// A process as /proc describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    /// The kernel's name of the process: the program's name, shortened, unless the process has changed it.
    name: String,
    /// The file that the process executes; empty if we may not read the link.
    file: String,
    /// Its arguments, separated by blanks; empty for a thread of the kernel.
    command: String,
}

/// The numbers of the processes that a word of `-p` means: a number, or the name of one or several.
///
/// # Errors
/// A message: no process has the name.
pub fn numbers_of(word: &str) -> Result<Vec<i32>, String> {
    if let Ok(pid) = word.parse() {
        return Ok(vec![pid]);
    }
    // A word that begins like a number is a mistyped number, not a name.
    if word.is_empty() || word.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        return Err(format!("-p {word}: this is neither a process's number nor its name"));
    }
    let all = all();
    let mut named = named(word, &all)?;
    named.retain(|process| !is_tracer(process.pid));
    let mut pids: Vec<i32> = named.iter().map(|process| process.pid).collect();
    if pids.is_empty() {
        return Err(format!("-p {word}: only nanoprobe itself has this name"));
    }
    // For a process that may not be traced, the attempt to trace it yields the message.
    if pids.iter().any(|pid| may_trace(*pid)) {
        pids.retain(|pid| may_trace(*pid));
    }
    Ok(pids)
}

/// The number of the only process that a word means, for commands that take one process.
///
/// # Errors
/// A message: no process has the name, or the list of those that have it.
pub fn number_of(word: &str) -> Result<i32, String> {
    match numbers_of(word)?[..] {
        [pid] => Ok(pid),
        ref pids => Err(format!(
            "{word}: {} processes have this name; give one by its number:\n{}",
            pids.len(),
            list(pids)
        )),
    }
}

/// A line for each of these processes.
pub fn list(pids: &[i32]) -> String {
    let processes: Vec<Process> = pids.iter().filter_map(|pid| process(*pid)).collect();
    lines(&processes)
}

fn lines(processes: &[Process]) -> String {
    let mut text = String::new();
    for process in processes.iter().take(LISTED_MAX) {
        let _ = writeln!(text, "{:>9} {}", process.pid, shown(&process.command));
    }
    if processes.len() > LISTED_MAX {
        let _ = writeln!(text, "{:>9} and {} more", "", processes.len() - LISTED_MAX);
    }
    text.trim_end().to_owned()
}

/// Checks that the opened process is the process that was found by its name. Meanwhile its number may have passed to
/// another process.
///
/// # Errors
/// A message.
pub fn check(pid: i32, name: Option<&str>) -> Result<(), String> {
    match name {
        Some(name) if !process(pid).is_some_and(|process| has_name(&process, name)) => Err(format!(
            "-p {name}: process {pid} had this name, and no longer has it; try again"
        )),
        _ => Ok(()),
    }
}

/// Device and inode of the file that a process runs.
pub fn file_of(pid: i32) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Whether a process is this one, or another nanoprobe.
pub fn is_tracer(pid: i32) -> bool {
    let own = std::process::id().cast_signed();
    let is_named = |path: PathBuf| path.file_name().is_some_and(|name| name == "nanoprobe");
    pid == own
        || file_of(pid).is_some_and(|file| Some(file) == file_of(own))
        || std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(is_named)
}

/// Whether we may look into a process: the kernel decides that for a read of this link.
pub fn may_trace(pid: i32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// The numbers of all processes.
pub fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
}

/// All processes except this one, in the order of their numbers.
fn all() -> Vec<Process> {
    let own = std::process::id().cast_signed();
    let mut all: Vec<Process> = pids().filter(|pid| *pid != own).filter_map(process).collect();
    all.sort_by_key(|process| process.pid);
    all
}

/// A live process by its number; `None` if it has ended meanwhile.
fn process(pid: i32) -> Option<Process> {
    let read = |file: &str| proc_file::read(format!("/proc/{pid}/{file}")).ok();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().to_owned();
    let file = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let mut command = read("cmdline")?;
    for byte in &mut command {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    Some(Process {
        pid,
        name: text(read("comm")?),
        file: file.to_string_lossy().into_owned(),
        command: text(command),
    })
}

/// The last part of a path, without the "(deleted)" that the kernel appends for a replaced file.
fn base(path: &str) -> &str {
    let path = path.trim_end_matches(" (deleted)");
    Path::new(path)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or(path)
}

/// A text of a process, on one line and without control characters: a hostile process could use them to drive the
/// reader's terminal.
pub fn shown(text: &str) -> String {
    let harmless = |letter: char| if letter.is_control() { '?' } else { letter };
    text.chars().take(COMMAND_SHOWN).map(harmless).collect()
}

/// The processes of which a name is like this pattern: the kernel's, that of the file, or that of the command line.
/// Threads of the kernel have no file, and are none.
pub fn matching(pattern: &str) -> Vec<i32> {
    let programs = pids().filter_map(process).filter(|process| !process.command.is_empty());
    programs
        .filter(|process| names_of(process).any(|name| glob::matches(pattern, name)))
        .map(|process| process.pid)
        .collect()
}

/// The names by which a process is known.
fn names_of(process: &Process) -> impl Iterator<Item = &str> {
    let started_as = process.command.split(' ').next().unwrap_or_default();
    let names = [process.name.as_str(), base(&process.file), base(started_as)];
    names.into_iter().filter(|name| !name.is_empty())
}

fn has_name(process: &Process, name: &str) -> bool {
    let started_as = process.command.split(' ').next().unwrap_or_default();
    let is_cut = |kernel: &str| kernel.len() == KERNEL_NAME_MAX && name.starts_with(kernel);
    process.name == name
        || base(&process.file) == name
        || base(started_as) == name
        || (process.file.is_empty() && is_cut(&process.name))
}

/// The processes with this name.
fn named<'p>(name: &str, all: &'p [Process]) -> Result<Vec<&'p Process>, String> {
    let of_programs = || all.iter().filter(|process| !process.command.is_empty());
    let named: Vec<&Process> = of_programs().filter(|process| has_name(process, name)).collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let names = of_programs().flat_map(|process| [process.name.as_str(), base(&process.file)]);
    let meant = spelling::nearest(name, names).map(|name| format!("; did you mean {}?", shown(name)));
    Err(format!(
        "-p {name}: no process has this name{}",
        meant.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, name: &str, file: &str, command: &str) -> Process {
        Process {
            pid,
            name: name.into(),
            file: file.into(),
            command: command.into(),
        }
    }

    fn numbers(name: &str, all: &[Process]) -> Result<Vec<i32>, String> {
        named(name, all).map(|named| named.iter().map(|process| process.pid).collect())
    }

    fn some() -> Vec<Process> {
        vec![
            process(2, "kthreadd", "", ""),
            process(
                10,
                "redis-server",
                "/usr/bin/redis-check-rdb",
                "/usr/bin/redis-server *:6379",
            ),
            process(20, "nginx", "/usr/sbin/nginx (deleted)", "nginx: master process nginx"),
            process(21, "nginx", "/usr/sbin/nginx (deleted)", "nginx: worker process"),
            process(30, "a-very-long-nam", "", "./a-very-long-name-of-a-program 1"),
        ]
    }

    #[test]
    fn a_name_of_one_process_is_that_process() {
        for (name, pid) in [
            ("redis-server", 10),
            ("redis-check-rdb", 10),
            ("a-very-long-nam", 30),
            ("a-very-long-name-of-a-program", 30),
        ] {
            assert_eq!(numbers(name, &some()), Ok(vec![pid]), "{name}");
        }
    }

    #[test]
    fn the_process_that_was_opened_has_the_name() {
        let own = std::process::id().cast_signed();
        let name = super::process(own).expect("it lives").name;
        assert_eq!(check(own, Some(&name)), Ok(()));
        assert_eq!(check(own, None), Ok(()));
        assert!(check(own, Some("another")).is_err());
        assert!(check(i32::MAX, Some(&name)).is_err(), "there is none");
    }

    #[test]
    fn a_pattern_means_any_of_a_process_s_names() {
        let all = some();
        let like = |pattern: &str| -> Vec<i32> {
            let is_like = |process: &&Process| names_of(process).any(|name| glob::matches(pattern, name));
            all.iter().filter(is_like).map(|process| process.pid).collect()
        };
        assert_eq!(like("nginx"), [20, 21]);
        assert_eq!(like("redis-*"), [10]);
        assert_eq!(like("a-very-long-name-of-*"), [30]);
        assert_eq!(like("ngin"), Vec::<i32>::new());
    }

    #[test]
    fn a_name_of_several_is_all_of_them() {
        assert_eq!(numbers("nginx", &some()), Ok(vec![20, 21]));
        let many: Vec<Process> = (1..=22).map(|pid| process(pid, "x", "", "x 1")).collect();
        assert_eq!(lines(&many[..2]), "        1 x 1\n        2 x 1");
        assert!(lines(&many).ends_with("       20 x 1\n          and 2 more"));
    }

    #[test]
    fn a_process_name_cannot_drive_a_terminal() {
        let hostile = ["x\x1b]0;title\x07 1", "x \n       99 root's shell"];
        let all: Vec<Process> = (1..)
            .zip(hostile)
            .map(|(pid, command)| process(pid, "x", "", command))
            .collect();
        let text = lines(&all);
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(
            text.chars().all(|letter| letter == '\n' || !letter.is_control()),
            "{text:?}"
        );
        let near = numbers("nginy", &[process(1, "ngin\x1b", "", "x")]).unwrap_err();
        assert!(near.ends_with("did you mean ngin??"), "{near:?}");
    }

    #[test]
    fn a_name_of_none_says_so_and_what_was_probably_meant() {
        let error = |name| numbers(name, &some()).unwrap_err();
        assert_eq!(error("postgres"), "-p postgres: no process has this name");
        assert_eq!(
            error("redis-sever"),
            "-p redis-sever: no process has this name; did you mean redis-server?"
        );
        // The kernel's threads cannot be chosen: they are no programs.
        assert_eq!(error("kthreadd"), "-p kthreadd: no process has this name");
        assert!(number_of("12x").unwrap_err().contains("neither"));
        assert_eq!(number_of("12"), Ok(12));
    }
}
