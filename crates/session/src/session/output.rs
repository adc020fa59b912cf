//! The output of a session.

use std::time::Duration;

use nanoprobe_lang::interpret::ClauseFault;
use nanoprobe_target::{Exit, Pauses};

/// Something for the user.
#[derive(Clone, Debug)]
pub enum Output {
    /// A clause fired and recorded.
    Record {
        /// The enabling.
        epid: u32,
        /// The CPU.
        cpu: u32,
        /// The thread.
        thread: u32,
        /// The record with its header.
        bytes: Vec<u8>,
    },
    /// A clause failed.
    Fault {
        /// The enabling.
        epid: u32,
        /// The fault, and the action in which it happened.
        fault: ClauseFault,
    },
    /// A library came, and probes were placed in it.
    Library {
        /// How many sites were patched.
        sites: usize,
        /// How long the target's threads stood still.
        pauses: Pauses,
    },
    /// A process that was forked from the target records, too.
    Child {
        /// Its number, as `pid` shows it.
        pid: u32,
    },
    /// Such a process ended, and how is known.
    ChildExited {
        /// Its number, as `pid` shows it.
        pid: u32,
        /// How it ended.
        exit: Exit,
    },
    /// Something could not be placed, or read.
    Warning(String),
    /// The target ended.
    Exited(Exit),
}

/// How attaching went.
#[derive(Clone, Debug, Default)]
pub struct Begun {
    /// From the first look at the target's threads to its last release.
    pub took: Duration,
    /// How long threads stood still.
    pub pauses: Pauses,
    /// Patched places.
    pub patches: usize,
}
