//! Tests that cannot run on this machine are left out, with a message.
//!
//! The test runner hides the output that a passing test prints with `print!`. So these lines go straight to the
//! standard error, and once more, all together, when the test binary ends.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, Once};

static REASONS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static AT_EXIT: Once = Once::new();

/// Reports that the calling test, or a part of it, is left out, and why.
pub fn left_out(what: &str, reason: &str) {
    AT_EXIT.call_once(|| {
        // SAFETY: `summary` is an `extern "C" fn()` that does not unwind; atexit only stores the pointer.
        unsafe { libc::atexit(summary) };
    });
    let line = format!("{what}: {reason}");
    let _ = writeln!(std::io::stderr(), "LEFT OUT {line}");
    if let Ok(mut reasons) = REASONS.lock() {
        // Several tests may need the same thing; the summary names it once.
        if !reasons.contains(&line) {
            reasons.push(line);
        }
    }
}

extern "C" fn summary() {
    if let Ok(reasons) = REASONS.lock() {
        let mut stderr = std::io::stderr();
        let _ = writeln!(stderr, "left out here: {}", reasons.len());
        for reason in reasons.iter() {
            let _ = writeln!(stderr, "  {reason}");
        }
    }
}

/// Whether we are the machine's root, and not only the root of a user namespace, as in a container.
pub fn is_root_of_the_machine() -> bool {
    nix::unistd::geteuid().is_root() && ranges_of_users().iter().any(|range| *range == (0, 0, u32::MAX.into()))
}

/// Whether we may become user 65534: we are root, and there is such a user.
pub fn has_another_user() -> bool {
    const NOBODY: u64 = 65534;
    let has = |(first, _, count): &(u64, u64, u64)| NOBODY.checked_sub(*first).is_some_and(|offset| offset < *count);
    nix::unistd::geteuid().is_root() && ranges_of_users().iter().any(has)
}

/// The users of our namespace: their first number here, their first number outside, and their count. Manual:
/// user_namespaces(7).
fn ranges_of_users() -> Vec<(u64, u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let ranges = text.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
        Some((numbers.next()??, numbers.next()??, numbers.next()??))
    });
    ranges.collect()
}

/// A command's full path, searched in `PATH` and the system's folders of servers.
pub fn find_command(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    // The system's own directories first: a shim earlier in PATH would be a script, and scripts
    // have no functions to probe.
    let system = [
        "/usr/bin",
        "/usr/sbin",
        "/bin",
        "/sbin",
        "/usr/local/bin",
        "/usr/local/go/bin",
    ]
    .map(str::to_owned);
    let all = system.into_iter().chain(path.split(':').map(str::to_owned));
    all.map(|folder| PathBuf::from(folder).join(name))
        .find(|candidate| candidate.is_file())
}

/// A command's full path. If there is none, reports that `what` is left out, and returns `None`.
pub fn need_command(what: &str, name: &str) -> Option<PathBuf> {
    let found = find_command(name);
    if found.is_none() {
        left_out(what, &format!("{name} is not installed"));
    }
    found
}
