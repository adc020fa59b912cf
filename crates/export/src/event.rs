//! A record together with its probe, as the caller passes it.

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
    /// `probefunc`.
    pub function: String,
    /// The function's name in the form that the linker has.
    pub linked: String,
    /// The function's name in the form that people read.
    pub shown: String,
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
    /// The layout of the record.
    pub layout: &'a RecordLayout,
    /// The CPU on which the record was written.
    pub cpu: u32,
    /// The thread that wrote the record (for flow indentation).
    pub thread: u32,
    /// The bytes of the record, with its header.
    pub record: &'a [u8],
    /// The enabled probe and the probe of the same thread's next record, if there already is one
    /// (for flow indentation).
    pub next: Option<(u32, u32)>,
}
