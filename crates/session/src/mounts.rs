//! The mounted file systems of a process, for `fds[].fi_fs` and `fi_mount`.

use std::fmt::Write as _;

use nanoprobe_target::proc_file;

/// Bytes of the lines. Code has them as a constant.
const BYTES_MAX: usize = 32 << 10;

/// A line for each mounted file system: `number major:minor name folder`.
pub fn of_process(pid: u32) -> String {
    let text = proc_file::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    lines(&String::from_utf8_lossy(&text))
}

/// The same from the text of `/proc/PID/mountinfo`.
fn lines(text: &str) -> String {
    let mut lines = String::new();
    for line in text.lines() {
        let Some((mount, file_system)) = line.split_once(" - ") else {
            continue;
        };
        let [number, _, device, _, folder, ..] = *mount.split(' ').collect::<Vec<_>>() else {
            continue;
        };
        let Some(name) = file_system.split(' ').next() else {
            continue;
        };
        let complete = lines.len();
        let _ = writeln!(lines, "{number} {device} {name} {}", unescaped(folder));
        if lines.len() > BYTES_MAX {
            lines.truncate(complete);
            break;
        }
    }
    lines
}

/// A folder without the kernel's `\040` and its like. The ends of lines stay as they are.
fn unescaped(folder: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\134", "\\")]
        .iter()
        .fold(folder.to_owned(), |folder, (escaped, plain)| {
            folder.replace(escaped, plain)
        })
}

/// The name (part 0) or the folder of the file system that an open file is on.
pub fn of_file(pid: u32, tid: u32, descriptor: i64, part: i64) -> String {
    let Ok(information) = proc_file::read_text(format!("/proc/{pid}/task/{tid}/fdinfo/{descriptor}")) else {
        return "<none>".to_owned();
    };
    let number = information.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let mounts = of_process(pid);
    let found = mounts.lines().find_map(|line| {
        let [mount, _, name, folder] = *line.splitn(4, ' ').collect::<Vec<_>>() else {
            return None;
        };
        (Some(mount) == number.map(str::trim)).then_some(if part == 0 { name } else { folder })
    });
    if let (None, 0) = (found, part) {
        let path = crate::identity::path_of(pid, tid, descriptor);
        let kinds: [(&[u8], &str); 3] = [
            (b"socket:", "sockfs"),
            (b"pipe:", "pipefs"),
            (b"anon_inode:", "anon_inodefs"),
        ];
        let kind = kinds.iter().find(|(begin, _)| path.starts_with(begin));
        return kind.map_or("<unknown>", |(_, name)| name).to_owned();
    }
    found.unwrap_or("<unknown>").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_lines_of_four_words() {
        let text = "25 30 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                    31 25 0:45 / /mnt/with\\040space rw - fuse.sshfs host:/a\\040b rw,user_id=0\n\
                    nonsense\n36 25 0:24 / /tmp rw master:1 shared:2 - tmpfs tmpfs rw\n";
        let expected = "25 8:1 ext4 /\n31 0:45 fuse.sshfs /mnt/with space\n36 0:24 tmpfs /tmp\n";
        assert_eq!(lines(text), expected);
        assert_eq!(lines(""), "");
        let many = "25 30 8:1 / /long rw - ext4 /dev/sda1 rw\n".repeat(10_000);
        let kept = lines(&many);
        assert!(kept.len() <= BYTES_MAX && kept.ends_with(" /long\n") && kept.len() > BYTES_MAX - 40);
    }

    #[test]
    fn a_file_of_this_process_has_a_file_system() {
        use std::os::fd::AsRawFd as _;
        let own = std::process::id();
        let of = |descriptor: i32, part| of_file(own, own, descriptor.into(), part);
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert_eq!(
            (of(file.as_raw_fd(), 0), of(file.as_raw_fd(), 1)),
            ("proc".to_owned(), "/proc".to_owned())
        );
        let (pipe, _) = std::io::pipe().unwrap();
        assert_eq!(
            (of(pipe.as_raw_fd(), 0), of(pipe.as_raw_fd(), 1)),
            ("pipefs".to_owned(), "<unknown>".to_owned())
        );
        assert_eq!(of(1_000_000, 0), "<none>");
    }
}
