//! The source files and lines of addresses: the reverse of `lines`.
//!
//! A table of lines has to be read from its start, so all addresses are asked for at once, and each table is read once.
//! Manual: DWARF 5, 6.2 Line Number Information.

use std::collections::HashSet;

use gimli::LineProgramHeader;

use crate::units::UnitIndex;
use crate::{DebugInfo, Dwarf, Slice, Unit};

/// Longer paths are left out.
const PATH_BYTES_MAX: usize = 4096;
/// How many rows may be compared with how many addresses. In linked programs an address is in one row.
const COMPARISONS_MAX: usize = 1 << 24;

/// The file and the line of an instruction.
pub type Source = (String, u64);

/// The searched addresses, ascending, each with its index in the caller's list.
type Wanted = [(u64, usize)];

impl DebugInfo {
    /// For each address of the image, the file (by the path that the compiler got) and the line of the instruction that
    /// contains the address.
    pub fn lines_at(&self, addresses: &[u64]) -> Vec<Option<Source>> {
        let mut found = vec![None; addresses.len()];
        let mut wanted: Vec<(u64, usize)> = addresses.iter().copied().zip(0..).collect();
        wanted.sort_unstable();
        let dwarf = self.dwarf();
        let mut seen = HashSet::new();
        let mut comparisons = COMPARISONS_MAX;
        for index in (0..self.units().count()).map(UnitIndex) {
            let Some(unit) = self.skeleton(&dwarf, index) else {
                continue;
            };
            let Some(program) = &unit.line_program else { continue };
            if seen.insert(program.header().offset().0) {
                // If a table is cut off, the rows before the cut have been used.
                let _ = search(&dwarf, &unit, (&wanted, &mut comparisons), &mut found);
            }
        }
        found
    }
}

/// A row of a line table: the address at which its instructions begin, and its file and line.
#[derive(Clone, Copy)]
struct Row {
    address: u64,
    file: u64,
    line: u64,
}

/// Executes a unit's table. `None`: it is cut off, or its rows contain the addresses too often.
fn search<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Unit<'a>,
    (wanted, comparisons): (&Wanted, &mut usize),
    found: &mut [Option<Source>],
) -> Option<()> {
    let program = unit.line_program.clone()?;
    let header = program.header().clone();
    let mut rows = program.rows();
    let mut before: Option<Row> = None;
    while let Some((_, row)) = rows.next_row().ok()? {
        let here = Row {
            address: row.address(),
            file: row.file_index(),
            line: row.line().map_or(0, std::num::NonZeroU64::get),
        };
        // Code that the linker left out begins at address 0.
        if let Some(last) = before.filter(|last| last.address != 0 && last.line != 0) {
            let first = wanted.partition_point(|(address, _)| *address < last.address);
            let inside = wanted.get(first..).unwrap_or_default().iter();
            for (_, place) in inside.take_while(|(address, _)| *address < here.address) {
                *comparisons = comparisons.checked_sub(1)?;
                let place = found.get_mut(*place).filter(|place| place.is_none());
                if let (Some(place), Some(file)) = (place, path(dwarf, unit, &header, last.file)) {
                    *place = Some((file, last.line));
                }
            }
        }
        before = (!row.end_sequence()).then_some(here);
    }
    Some(())
}

fn path<'a>(dwarf: &Dwarf<'a>, unit: &Unit<'a>, header: &LineProgramHeader<Slice<'a>>, file: u64) -> Option<String> {
    let entry = header.file(file)?;
    let name = dwarf.attr_string(unit, entry.path_name()).ok()?.to_string_lossy();
    let directory = entry.directory(header);
    let directory = directory.and_then(|directory| dwarf.attr_string(unit, directory).ok());
    let directory = directory.map(|directory| directory.to_string_lossy());
    let path = match directory.filter(|directory| !name.starts_with('/') && !directory.is_empty()) {
        Some(directory) => format!("{directory}/{name}"),
        None => name.into_owned(),
    };
    (path.len() <= PATH_BYTES_MAX).then_some(path)
}
