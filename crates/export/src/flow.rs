//! Flow indentation (`-F`): entries open a level, returns close it.
//!
//! ```text
//! CPU FUNCTION
//!   0  -> main
//!   0    -> func
//!   0    | func:4
//!   0    <- func
//!   0  <- main
//! ```
//!
//! Each thread has its own depth. Several clauses at one entry (or one return) indent only once. To
//! detect this, an entry is compared with the previous record, and a return with the next one.

use std::collections::HashMap;

use crate::event::ProbeName;

/// The depth of one thread, and its last record.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    indent: usize,
    /// The enabled probe and the probe of the previous record.
    last: Option<(u32, u32)>,
}

/// The depth of every thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    threads: HashMap<u32, Thread>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Entry,
    Return,
    Other,
}

impl Flow {
    /// The text of a record's FUNCTION column. `next` is the enabled probe and the probe of the
    /// thread's next record, if there already is one.
    pub(crate) fn column(&mut self, thread: u32, epid: u32, probe: &ProbeName, next: Option<(u32, u32)>) -> String {
        let state = self.threads.entry(thread).or_default();
        let here = (epid, probe.id);
        let same_probe = |other: Option<(u32, u32)>| other.is_some_and(|other| other.0 != here.0 && other.1 == here.1);
        let named = kind(&probe.name);
        let kind = match named {
            Kind::Entry if same_probe(state.last) => Kind::Other,
            Kind::Return if same_probe(next) => Kind::Other,
            kind => kind,
        };
        state.last = Some(here);
        let function = &probe.shown;
        match kind {
            Kind::Entry => {
                let indent = state.indent;
                state.indent = (indent + 2).min(INDENT_MAX);
                format!("{:indent$} -> {function}", "")
            }
            Kind::Return => {
                state.indent = state.indent.saturating_sub(2);
                format!("{:1$} <- {function}", "", state.indent)
            }
            Kind::Other => format!("{:1$}| {function}:{2}", "", state.indent, probe.name),
        }
    }
}

/// A thread that enters functions and never returns must not push its output out of sight.
const INDENT_MAX: usize = 1024;

/// `entry` and names that end in `-entry` are entries; `carpentry` is not.
fn kind(name: &str) -> Kind {
    let is = |word: &str| {
        name.strip_suffix(word)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('-'))
    };
    if is("entry") {
        Kind::Entry
    } else if is("return") {
        Kind::Return
    } else {
        Kind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(id: u32, function: &str, name: &str) -> ProbeName {
        ProbeName {
            id,
            function: function.to_owned(),
            shown: function.to_owned(),
            name: name.to_owned(),
            ..ProbeName::default()
        }
    }

    #[test]
    fn calls_open_and_returns_close() {
        let mut flow = Flow::default();
        let (main, func) = (probe(1, "main", "entry"), probe(2, "func", "entry"));
        let (out, end) = (probe(3, "func", "return"), probe(4, "main", "return"));
        let at = probe(5, "func", "4");
        let lines = [
            flow.column(1, 1, &main, None),
            flow.column(1, 2, &func, None),
            flow.column(2, 2, &func, None), // another thread
            flow.column(1, 6, &func, None), // another clause at the same entry
            flow.column(1, 5, &at, None),
            flow.column(1, 3, &out, Some((7, 3))), // another clause at the same return follows
            flow.column(1, 7, &out, Some((4, 4))),
            flow.column(1, 4, &end, None),
            flow.column(1, 4, &end, None), // a return whose entry was not seen
        ];
        assert_eq!(
            lines,
            [
                " -> main",
                "   -> func",
                " -> func",
                "    | func:entry",
                "    | func:4",
                "    | func:return",
                "   <- func",
                " <- main",
                " <- main"
            ]
        );
    }

    #[test]
    fn a_carpentry_is_no_entry() {
        let mut flow = Flow::default();
        assert_eq!(flow.column(1, 1, &probe(1, "f", "carpentry"), None), "| f:carpentry");
        assert_eq!(flow.column(1, 2, &probe(2, "f", "method-entry"), None), " -> f");
        assert_eq!(flow.column(1, 3, &probe(3, "f", "method-return"), None), " <- f");
    }
}
