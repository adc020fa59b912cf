//! What /proc says of a process that D has variables for: its parents, its command line.

/// As many as any process tree is deep.
const ANCESTORS_MAX: usize = 64;
/// Bytes of `curpsinfo->pr_psargs` without its NUL, as in DTrace's `psinfo_t`.
const ARGUMENTS_BYTES_MAX: usize = 79;

/// A process and its ancestors.
pub fn ancestors_of(pid: u32) -> Vec<u32> {
    std::iter::successors(Some(pid), |pid| Some(parent_of(*pid)).filter(|parent| *parent != 0))
        .take(ANCESTORS_MAX)
        .collect()
}

/// Its parent; 0 where there is none.
pub fn parent_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Its command line, in one line and cut. A process may have written anything there.
pub fn arguments_of(pid: u32) -> String {
    joined(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())
}

/// ns that a thread has been on a processor; 0 when it is no more.
pub fn processor_time_of(pid: i32, tid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
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
    use super::joined;

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
