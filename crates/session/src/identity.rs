//! The data in /proc for D's variables: a process's parents, its command line.

use nanoprobe_codegen::{ProgramStart, SessionConstants};
use nanoprobe_lang::program::{CURRENT_FOLDER, ROOT_FOLDER};
use nanoprobe_target::proc_file;

/// More ancestors than any process tree is deep.
const ANCESTORS_MAX: usize = 64;
/// Bytes of `curpsinfo->pr_psargs` without its NUL, as in DTrace's `psinfo_t`.
const ARGUMENTS_BYTES_MAX: usize = 79;

/// The data of a process that clauses read and that does not change in a session, without its ancestors and mounts.
pub fn constants_of(pid: u32, execname: String) -> SessionConstants {
    let ids = ids_of(pid);
    SessionConstants {
        pid,
        ppid: ids.parent,
        ancestors: Vec::new(),
        mounts: String::new(),
        uid: ids.user[0],
        gid: ids.group[0],
        effective_uid: ids.user[1],
        effective_gid: ids.group[1],
        process_group: ids.process_group,
        process_session: ids.process_session,
        execname,
        arguments: arguments_of(pid),
        start: start_of(pid),
    }
}

/// A process and its ancestors.
pub fn ancestors_of(pid: u32) -> Vec<u32> {
    std::iter::successors(Some(pid), |pid| Some(parent_of(*pid)).filter(|parent| *parent != 0))
        .take(ANCESTORS_MAX)
        .collect()
}

/// The user, group and similar numbers of a process at this moment; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// The process's parent.
    pub parent: u32,
    /// The process's users: real, effective.
    pub user: [u32; 2],
    /// The process's groups: real, effective.
    pub group: [u32; 2],
    /// The process's group, in our pid namespace.
    pub process_group: u32,
    /// The process's session, in our pid namespace.
    pub process_session: u32,
}

/// The numbers of a process.
pub fn ids_of(pid: u32) -> Ids {
    let status = proc_file::read_text(format!("/proc/{pid}/status")).unwrap_or_default();
    let of_process = nix::unistd::Pid::from_raw(pid as i32);
    Ids {
        process_group: nix::unistd::getpgid(Some(of_process)).map_or(0, |group| group.as_raw() as u32),
        process_session: nix::unistd::getsid(Some(of_process)).map_or(0, |session| session.as_raw() as u32),
        ..in_status(&status)
    }
}

/// The ids that /proc/PID/status shows.
fn in_status(status: &str) -> Ids {
    let numbers = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let mut words = line
            .unwrap_or_default()
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0));
        [words.next().unwrap_or(0), words.next().unwrap_or(0)]
    };
    Ids {
        parent: numbers("PPid:")[0],
        user: numbers("Uid:"),
        group: numbers("Gid:"),
        ..Ids::default()
    }
}

/// The process of a thread, if the thread exists.
pub fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))?
        .trim()
        .parse()
        .ok()
}

/// The parent of a process; 0 if there is none.
pub fn parent_of(pid: u32) -> u32 {
    ids_of(pid).parent
}

/// The path to which a link of a process in /proc leads (`fd/3`, `cwd`); "<none>" if there is no such link.
pub fn path_of(pid: u32, tid: u32, descriptor: i64) -> Vec<u8> {
    use std::os::unix::ffi::OsStringExt as _;
    let what = match descriptor {
        CURRENT_FOLDER => "cwd".to_owned(),
        ROOT_FOLDER => "root".to_owned(),
        _ => format!("fd/{descriptor}"),
    };
    let found = std::fs::read_link(format!("/proc/{pid}/task/{tid}/{what}"));
    found.map_or_else(|_| b"<none>".to_vec(), |path| path.into_os_string().into_vec())
}

/// The name of a thread.
pub fn thread_name_of(pid: u32, tid: u32) -> Vec<u8> {
    let mut name = proc_file::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    name.pop_if(|last| *last == b'\n');
    name
}

/// The command line of a process, in one line and shortened. The process may have overwritten it with anything.
pub fn arguments_of(pid: u32) -> String {
    joined(&proc_file::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())
}

/// Where the kernel has put the arguments and the environment of a process's program: at the start of its stack, as the
/// ABI says. The program may have overwritten them since.
pub fn start_of(pid: u32) -> ProgramStart {
    use std::os::unix::fs::FileExt as _;
    let stat = proc_file::read_text(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some(stack) = start_of_stack(&stat) else {
        return ProgramStart::default();
    };
    let mut word = [0; 8];
    let read =
        std::fs::File::open(format!("/proc/{pid}/mem")).and_then(|memory| memory.read_exact_at(&mut word, stack));
    match i32::try_from(u64::from_le_bytes(word)) {
        Ok(argument_count) if read.is_ok() => program_start(stack, argument_count),
        _ => ProgramStart::default(),
    }
}

/// The number of arguments lies where the stack starts. Pointers to the arguments follow, then a null pointer, then
/// pointers to the environment.
fn program_start(stack: u64, argument_count: i32) -> ProgramStart {
    let arguments = stack.wrapping_add(8);
    let behind = (u64::from(argument_count.unsigned_abs()) + 1) * 8;
    ProgramStart {
        argument_count,
        arguments,
        environment: arguments.wrapping_add(behind),
    }
}

/// The start of the stack according to /proc/PID/stat; `None` if we may not read it.
fn start_of_stack(stat: &str) -> Option<u64> {
    // The process's name may hold any characters, and is in brackets.
    let (_, behind) = stat.rsplit_once(") ")?;
    let start = behind.split(' ').nth(25)?.parse().ok()?;
    (start != 0).then_some(start)
}

/// The processor time of a thread in ns; 0 when the thread has ended.
pub fn processor_time_of(pid: i32, tid: i32) -> u64 {
    let text = proc_file::read_text(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn joined(words: &[u8]) -> String {
    let words = words.strip_suffix(&[0]).unwrap_or(words);
    let text = String::from_utf8_lossy(words).replace('\0', " ");
    let end = (0..=ARGUMENTS_BYTES_MAX.min(text.len())).rfind(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Ids, ProgramStart, in_status, joined, program_start, start_of_stack};

    #[test]
    fn real_comes_before_effective() {
        let status = "Name:\tsu\nPid:\t7\nPPid:\t5\nUid:\t1000\t0\t0\t0\nGid:\t100\t50\t50\t50\n";
        let expected = Ids {
            parent: 5,
            user: [1000, 0],
            group: [100, 50],
            ..Ids::default()
        };
        assert_eq!(in_status(status), expected);
        assert_eq!(in_status(""), Ids::default());
        assert_eq!(in_status("Uid:\tx"), Ids::default());
    }

    #[test]
    fn arguments_and_environment_lie_where_the_stack_starts() {
        let stat = "7 (a) (b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 140000 26 27 0\n";
        assert_eq!(start_of_stack(stat), Some(140_000));
        assert_eq!(start_of_stack(&stat.replace("140000", "0")), None);
        assert_eq!(start_of_stack("7 (a) S 1 2"), None);
        assert_eq!(start_of_stack(""), None);
        let expected = ProgramStart {
            argument_count: 2,
            arguments: 0x1008,
            environment: 0x1020,
        };
        assert_eq!(program_start(0x1000, 2), expected);
    }

    #[test]
    fn a_command_line_is_one_line_and_has_an_end() {
        assert_eq!(joined(b"./looper\0-n\0seven eight\0"), "./looper -n seven eight");
        assert_eq!(joined(b""), "");
        assert_eq!(joined(&[b'x'; 500]), "x".repeat(79));
        assert_eq!(
            joined("\u{e9}".repeat(60).as_bytes()),
            "\u{e9}".repeat(39),
            "no character is cut"
        );
        assert_eq!(joined(b"\xff\0a"), "\u{fffd} a");
    }
}
