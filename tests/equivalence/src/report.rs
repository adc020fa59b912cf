//! Counts and reports: totals, kept in memory that the parent sees, and the failure of a case.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use iced_x86::{Decoder, DecoderOptions};
use nanoprobe_patch::{Fire, FireCondition, Point};

use crate::executor::End;
use crate::generate::KINDS;
use crate::last_words::LastWords;
use crate::sequence::Laid;
use crate::state::Registers;
use crate::tactics::{Patching, ROWS};

/// Counts in memory that a worker shares with its parent, so that they outlive the worker.
#[derive(Default)]
pub struct Shared {
    /// The sequence that is being checked.
    pub index: AtomicU64,
    /// 1 while patched code runs. If the worker dies then, the patch is to blame.
    pub patched: AtomicU64,
    pub cases: [AtomicU64; ROWS.len()],
    pub sequences: [AtomicU64; KINDS.len()],
    /// The number of cases that ended by a fault.
    pub faults: AtomicU64,
    /// The number of traps that were redirected.
    pub traps: AtomicU64,
    /// The number of native runs that did not end.
    pub endless: AtomicU64,
    /// The number of differences that the sequence shows without patches as well.
    pub unstable: AtomicU64,
    /// The numbers of trap sites by their form, of points that call functions, and of points that fire after an
    /// instruction.
    pub emulated: AtomicU64,
    pub stepped: AtomicU64,
    pub functions: AtomicU64,
    pub behind: AtomicU64,
    /// Points that were refused although no tactic was forced, or the tactic was `trap`.
    pub refused: AtomicU64,
    pub failures: AtomicU64,
    pub last_words: LastWords,
}

/// The parent maps one page.
const _: () = assert!(size_of::<Shared>() <= 4096);

/// The counts of one worker.
pub struct Totals<'a> {
    shared: &'a Shared,
    pub sequences: u64,
    pub endless: u64,
    pub unstable: u64,
    /// For each reason of a refusal, how often it occurred.
    pub refusals: BTreeMap<String, u64>,
}

impl<'a> Totals<'a> {
    pub fn new(shared: &'a Shared) -> Totals<'a> {
        Totals {
            shared,
            sequences: 0,
            endless: 0,
            unstable: 0,
            refusals: BTreeMap::new(),
        }
    }

    /// Notes that a run of patched code begins.
    pub fn begin_patched(&self, row: usize, entry: u64) {
        self.shared.last_words.row.store(row as u64 + 1, Relaxed);
        self.shared.last_words.entry.store(entry, Relaxed);
        self.shared.patched.store(1, Relaxed);
    }

    pub fn end_patched(&self) {
        self.shared.patched.store(0, Relaxed);
        self.shared.last_words.row.store(0, Relaxed);
    }

    pub fn count(&self, tactic: &str, end: &End) {
        if let Some(row) = ROWS.iter().position(|row| row.name == tactic) {
            self.shared.cases[row].fetch_add(1, Relaxed);
        }
        if matches!(end, End::Fault(_)) {
            self.shared.faults.fetch_add(1, Relaxed);
        }
    }

    pub fn note_refusals(&mut self, patching: &Patching) {
        self.shared.refused.fetch_add(patching.refusals.len() as u64, Relaxed);
        for (_, refusal) in &patching.refusals {
            // The reason without addresses, so that equal reasons are counted together.
            let words = refusal.to_string();
            let words: Vec<&str> = words.split(' ').filter(|word| !word.starts_with("0x")).collect();
            *self.refusals.entry(words.join(" ")).or_default() += 1;
        }
    }

    /// Counts the special points of a patching.
    pub fn note_points(&self, patching: &Patching) {
        let [emulated, _, stepped] = patching.forms;
        self.shared.emulated.fetch_add(emulated, Relaxed);
        self.shared.stepped.fetch_add(stepped, Relaxed);
        let is_function = |point: &&Point| matches!(point.fires[..], [Fire::Function { .. }]);
        let points = patching.points.iter();
        let functions = points.clone().filter(is_function).count() as u64;
        let behind = points.filter(|point| point.condition == FireCondition::Behind).count() as u64;
        self.shared.functions.fetch_add(functions, Relaxed);
        self.shared.behind.fetch_add(behind, Relaxed);
    }

    /// Makes the local counts visible to the parent.
    pub fn publish(&mut self, kind: usize) {
        self.shared.sequences[kind].fetch_add(1, Relaxed);
        self.shared
            .endless
            .fetch_add(std::mem::take(&mut self.endless), Relaxed);
        self.shared
            .unstable
            .fetch_add(std::mem::take(&mut self.unstable), Relaxed);
        self.shared.traps.store(crate::executor::TRAPS.load(Relaxed), Relaxed);
    }
}

/// A case whose patched run differs from the native one.
pub struct Failure {
    pub tactic: &'static str,
    pub start: u64,
    pub entry: u64,
    pub laid: Laid,
    pub patching: Patching,
    pub difference: String,
    pub registers: Registers,
    pub native: End,
    pub patched: End,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x} ")).collect()
}

fn disassemble(text: &mut String, bytes: &[u8], address: u64) -> fmt::Result {
    for instruction in &mut Decoder::with_ip(64, bytes, address, DecoderOptions::NONE) {
        let at = (instruction.ip() - address) as usize;
        let end = (at + instruction.len()).min(bytes.len());
        writeln!(
            text,
            "    {:#x}  {:<46} {instruction}",
            instruction.ip(),
            hex(&bytes[at..end])
        )?;
    }
    Ok(())
}

impl Failure {
    /// Describes everything that is needed to understand the failure.
    pub fn describe(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        writeln!(
            text,
            "  tactic {}, entered at {:#x}: {}",
            self.tactic, self.entry, self.difference
        )?;
        writeln!(text, "  natively: {:x?}\n  patched: {:x?}", self.native, self.patched)?;
        writeln!(text, "  from {:x?}", self.registers)?;
        writeln!(text, "  the sequence, function of {} bytes:", self.laid.size)?;
        disassemble(&mut text, &self.laid.bytes, self.start)?;
        for (address, bytes) in &self.patching.writes {
            writeln!(text, "  written at {address:#x}:")?;
            disassemble(&mut text, bytes, *address)?;
        }
        writeln!(text, "  redirects {:x?}", self.patching.redirects)?;
        for origin in &self.patching.origins {
            writeln!(text, "  origin {:x?}", origin)?;
        }
        Ok(text)
    }
}
