//! The caller's view of what was recorded.

use nanoprobe_lang::layout::RecordLayout;
use nanoprobe_lang::program::Clause;

/// A probe, with the names that the columns and the messages show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeName {
    /// The probe's number.
    pub id: u32,
    /// `pid1234`, `dtrace`, ...
    pub provider: String,
    pub module: String,
    pub function: String,
    /// `entry`, `return`, an offset, `BEGIN`, `tick-1s`, ...
    pub name: String,
}

/// A record with its probe, clause, CPU and thread.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The enabled probe.
    pub epid: u32,
    pub probe: &'a ProbeName,
    /// The clause that wrote the record.
    pub clause: &'a Clause,
    /// Its layout.
    pub layout: &'a RecordLayout,
    /// The CPU on which it was written.
    pub cpu: u32,
    /// The thread that wrote it (for flow indentation).
    pub thread: u32,
    /// The record with its header.
    pub record: &'a [u8],
    /// The enabled probe and the probe of the same thread's next record, if there already is one
    /// (for flow indentation).
    pub next: Option<(u32, u32)>,
}
