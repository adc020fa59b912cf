//! A signal for which a handler of the program begins.

use std::fmt::Write as _;

use super::SIGNAL;
use crate::signals::SIGINFO;

/// The clause that records the signals of a set. None are none.
pub(super) fn clause(signals: u64) -> String {
    let mut text = String::new();
    if signals == 0 {
        return text;
    }
    text += "proc:::signal-handle\n";
    if signals != u64::MAX {
        let _ = writeln!(text, "/(uint64_t){signals:#x} >> (arg0 - 1) & 1/");
    }
    // Without SA_SIGINFO the kernel writes no siginfo. The stack is there in any case.
    let _ = writeln!(
        text,
        "{{\n\ttrace({SIGNAL});\n\ttrace(tid);\n\ttrace(pid);\n\ttrace(timestamp);\n\ttrace(walltimestamp);\n\
         \ttrace(arg0);\n\ttrace(arg1);\n\
         \ttracemem(copyin(arg1 != 0 ? arg1 : uregs[R_RSP], {SIGINFO}), {SIGINFO});\n}}\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_not_wanted_are_not_recorded() {
        assert_eq!(clause(0), "");
        assert!(clause(u64::MAX).starts_with("proc:::signal-handle\n{\n"));
        assert!(clause(1 << 9).starts_with("proc:::signal-handle\n/(uint64_t)0x200 >> (arg0 - 1) & 1/\n{\n"));
    }
}
