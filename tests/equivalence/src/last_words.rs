//! The last actions of an executor, in memory that its parent reads after its end: the case, the run, and the last
//! signals.
//!
//! An executor may end without a message. The kernel ends it when a signal of an instruction is
//! blocked, or when its frame cannot be written, and runaway code may end it in any way. Its
//! registers are lost then, except those of the signals that it took before.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

use crate::tactics::ROWS;

/// How many signals are remembered.
const SIGNALS: usize = 8;

/// A signal, as the handler found it.
#[derive(Clone, Copy)]
pub enum Word {
    Signal,
    Code,
    Trap,
    Error,
    Rip,
    Rsp,
    Flags,
    Address,
}

const WORDS: usize = 8;
const NAMES: [(Word, &str); WORDS] = [
    (Word::Signal, "signal"),
    (Word::Code, "code"),
    (Word::Trap, "trap"),
    (Word::Error, "error"),
    (Word::Rip, "rip"),
    (Word::Rsp, "rsp"),
    (Word::Flags, "flags"),
    (Word::Address, "cr2"),
];

/// See the module.
#[derive(Default)]
pub struct LastWords {
    /// The index of the row plus one; 0: the sequence runs natively.
    pub row: AtomicU64,
    /// The address at which the sequence is entered.
    pub entry: AtomicU64,
    /// The runs begun, and the runs ended. If a run was cut off, one more was begun.
    pub begun: AtomicU64,
    pub ended: AtomicU64,
    /// The address to which the run was sent.
    pub target: AtomicU64,
    signals: [[AtomicU64; WORDS]; SIGNALS],
    count: AtomicU64,
}

/// The last words of this process.
static OWN: AtomicPtr<LastWords> = AtomicPtr::new(std::ptr::null_mut());

/// Makes this process record its last actions in `words`.
pub fn speak_into(words: &'static LastWords) {
    OWN.store(std::ptr::from_ref(words).cast_mut(), Relaxed);
}

fn own() -> Option<&'static LastWords> {
    // SAFETY: null, or a reference that lives as long as the process.
    unsafe { OWN.load(Relaxed).as_ref() }
}

/// Notes that a run begins.
pub fn begin(target: u64) {
    if let Some(own) = own() {
        own.target.store(target, Relaxed);
        own.begun.fetch_add(1, Relaxed);
    }
}

/// Notes that a run has ended.
pub fn end() {
    if let Some(own) = own() {
        own.ended.fetch_add(1, Relaxed);
    }
}

/// Notes a signal. It is called in the handler: no lock, no allocation.
pub fn note(words: [u64; WORDS]) {
    let Some(own) = own() else { return };
    let number = own.count.fetch_add(1, Relaxed) as usize;
    for (to, from) in own.signals[number % SIGNALS].iter().zip(words) {
        to.store(from, Relaxed);
    }
}

impl fmt::Display for LastWords {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = (self.row.load(Relaxed) as usize)
            .checked_sub(1)
            .and_then(|row| ROWS.get(row));
        let (begun, ended) = (self.begun.load(Relaxed), self.ended.load(Relaxed));
        writeln!(
            formatter,
            "  {}, entered at {:#x}; {begun} runs begun, {ended} ended, the last one sent to {:#x}",
            row.map_or("natively", |row| row.name),
            self.entry.load(Relaxed),
            self.target.load(Relaxed),
        )?;
        let count = self.count.load(Relaxed) as usize;
        writeln!(formatter, "  {count} signals, the last of them:")?;
        for number in count.saturating_sub(SIGNALS)..count {
            let mut line = String::from("   ");
            for (word, name) in NAMES {
                write!(
                    line,
                    " {name} {:#x}",
                    self.signals[number % SIGNALS][word as usize].load(Relaxed)
                )?;
            }
            writeln!(formatter, "{line}")?;
        }
        Ok(())
    }
}

/// The answer of waitid(2) for a child that has ended, before it is reaped. A status alone does not show whether a
/// signal was sent or raised.
pub fn end_of(information: &libc::siginfo_t, status: i32) -> String {
    let how = match information.si_code {
        libc::CLD_EXITED => format!("exit status {}", libc::WEXITSTATUS(status)),
        libc::CLD_KILLED => format!("signal {}", libc::WTERMSIG(status)),
        libc::CLD_DUMPED => format!("signal {}, core dumped", libc::WTERMSIG(status)),
        other => format!("code {other}"),
    };
    // SAFETY: of a SIGCHLD these fields are there.
    let (pid, said) = unsafe { (information.si_pid(), information.si_status()) };
    format!("{how} (pid {pid}, si_status {said:#x}, wait status {status:#x})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_signals_are_reported() {
        let words: &'static LastWords = Box::leak(Box::default());
        speak_into(words);
        begin(0x1234);
        for number in 0..11 {
            note([11, 1, 14, 6, 0x1000 + number, 0x2000, 0x246, 0x3000]);
        }
        words.row.store(1, Relaxed);
        let text = words.to_string();
        assert!(
            text.contains("1 runs begun, 0 ended, the last one sent to 0x1234"),
            "{text}"
        );
        assert!(text.contains(ROWS[0].name), "{text}");
        assert!(!text.contains("rip 0x1002 ") && text.contains("rip 0x1003 "), "{text}");
        assert!(text.contains("signal 0xb code 0x1 trap 0xe error 0x6 rip 0x100a rsp 0x2000 flags 0x246 cr2 0x3000"));
    }
}
