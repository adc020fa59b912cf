//! What was recorded, as the caller hands it over.

use nanoprobe_lang::layout::RecordLayout;
use nanoprobe_lang::program::Clause;

/// A probe, as the columns and the messages name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeName {
    /// The probe's number.
    pub id: u32,
    /// `pid1234`, `dtrace`, ...
    pub provider: String,
    /// The module.
    pub module: String,
    /// The function.
    pub function: String,
    /// `entry`, `return`, an offset, `BEGIN`, `tick-1s`, ...
    pub name: String,
}

/// A record with what it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The enabled probe.
    pub epid: u32,
    /// The probe.
    pub probe: &'a ProbeName,
    /// The clause that wrote the record.
    pub clause: &'a Clause,
    /// Its layout.
    pub layout: &'a RecordLayout,
    /// The CPU it was written on.
    pub cpu: u32,
    /// The thread that wrote it (for flow indentation).
    pub thread: u32,
    /// The record with its header.
    pub record: &'a [u8],
    /// Enabled probe and probe of the same thread's next record, where there is one already (for flow indentation).
    pub next: Option<(u32, u32)>,
}
