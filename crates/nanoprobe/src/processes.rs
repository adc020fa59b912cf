//! Processes by their names: what `-p NAME` means.

use std::fmt::Write as _;
use std::path::Path;

use nanoprobe_lang::spelling;

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

/// The number of the process that `-p` means. `-p` takes a number, or a name that only one process has.
///
/// # Errors
/// A message: no process has the name, or the list of those that have it.
pub fn number_of(word: &str) -> Result<i32, String> {
    if let Ok(pid) = word.parse() {
        return Ok(pid);
    }
    // A word that begins like a number is a mistyped number, not a name.
    if word.is_empty() || word.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        return Err(format!("-p {word}: this is neither a process's number nor its name"));
    }
    chosen(word, &all())
}

/// Checks that the opened process is the process that was found by its name. Meanwhile its number may have passed to
/// another process.
///
/// # Errors
/// A message.
pub fn check(pid: i32, name: Option<&str>) -> Result<(), String> {
    match name {
        Some(name) if !process(pid).is_some_and(|process| has_name(&process, name)) => Err(format!(
            "-p {name}: process {pid} had this name, and has it no more; try again"
        )),
        _ => Ok(()),
    }
}

/// All processes except this one, in the order of their numbers.
fn all() -> Vec<Process> {
    let own = std::process::id().cast_signed();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut all: Vec<Process> = pids.filter(|pid| *pid != own).filter_map(process).collect();
    all.sort_by_key(|process| process.pid);
    all
}

/// A live process by its number; `None` if it has ended meanwhile.
fn process(pid: i32) -> Option<Process> {
    let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).ok();
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

fn has_name(process: &Process, name: &str) -> bool {
    let started_as = process.command.split(' ').next().unwrap_or_default();
    let is_cut = |kernel: &str| kernel.len() == KERNEL_NAME_MAX && name.starts_with(kernel);
    process.name == name
        || base(&process.file) == name
        || base(started_as) == name
        || (process.file.is_empty() && is_cut(&process.name))
}

/// The only process with this name.
fn chosen(name: &str, all: &[Process]) -> Result<i32, String> {
    let of_programs = || all.iter().filter(|process| !process.command.is_empty());
    let named: Vec<&Process> = of_programs().filter(|process| has_name(process, name)).collect();
    match named[..] {
        [one] => Ok(one.pid),
        [] => {
            let names = of_programs().flat_map(|process| [process.name.as_str(), base(&process.file)]);
            let meant = spelling::nearest(name, names).map(|name| format!("; did you mean {}?", shown(name)));
            Err(format!(
                "-p {name}: no process has this name{}",
                meant.unwrap_or_default()
            ))
        }
        _ => {
            let mut text = format!(
                "-p {name}: {} processes have this name; give one by its number:",
                named.len()
            );
            for process in named.iter().take(LISTED_MAX) {
                let _ = write!(text, "\n{:>9} {}", process.pid, shown(&process.command));
            }
            if named.len() > LISTED_MAX {
                let _ = write!(text, "\n{:>9} and {} more", "", named.len() - LISTED_MAX);
            }
            Err(text)
        }
    }
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
            assert_eq!(chosen(name, &some()), Ok(pid), "{name}");
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
    fn a_name_of_several_lists_them() {
        let error = chosen("nginx", &some()).unwrap_err();
        assert_eq!(
            error,
            "-p nginx: 2 processes have this name; give one by its number:\n       20 nginx: master process nginx\n       \
             21 nginx: worker process"
        );
    }

    #[test]
    fn what_a_process_calls_itself_cannot_drive_a_terminal() {
        let hostile = ["x\x1b]0;title\x07 1", "x \n       99 root's shell"];
        let all: Vec<Process> = (1..)
            .zip(hostile)
            .map(|(pid, command)| process(pid, "x", "", command))
            .collect();
        let error = chosen("x", &all).unwrap_err();
        assert_eq!(error.lines().count(), 3, "{error:?}");
        assert!(
            error.chars().all(|letter| letter == '\n' || !letter.is_control()),
            "{error:?}"
        );
        let near = chosen("nginy", &[process(1, "ngin\x1b", "", "x")]).unwrap_err();
        assert!(near.ends_with("did you mean ngin??"), "{near:?}");
    }

    #[test]
    fn a_name_of_none_says_so_and_what_was_probably_meant() {
        let error = |name| chosen(name, &some()).unwrap_err();
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
