//! Units: their places, and which of them contains an address.

use std::collections::HashMap;

use gimli::{DebugInfoOffset, DebugTypeSignature, DebugTypesOffset, UnitHeader, UnitOffset, UnitType};

use crate::{DebugInfo, Dwarf, Problem, Slice, Unit};

/// The most units: a browser has 20,000.
const UNITS_MAX: usize = 1 << 20;

/// Index of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct UnitIndex(pub u32);

/// The place of a unit's header.
#[derive(Clone, Copy, Debug)]
enum Place {
    Info(DebugInfoOffset),
    Types(DebugTypesOffset),
}

/// All units, by their headers.
#[derive(Debug, Default)]
pub(crate) struct Units {
    /// The units in the order of .debug_info, then those of .debug_types.
    list: Vec<Place>,
    by_signature: HashMap<DebugTypeSignature, (UnitIndex, UnitOffset)>,
    /// The ranges of addresses, from .debug_aranges or from the units themselves, sorted by start.
    ranges: std::sync::OnceLock<Vec<(u64, u64, UnitIndex)>>,
}

impl Units {
    pub fn count(&self) -> u32 {
        self.list.len() as u32
    }

    /// The offset of a unit in .debug_info.
    pub fn offset(&self, index: UnitIndex) -> Option<DebugInfoOffset> {
        match self.list.get(index.0 as usize)? {
            Place::Info(offset) => Some(*offset),
            Place::Types(_) => None,
        }
    }

    /// A unit of types and its type, by the unit's signature.
    pub fn of_signature(&self, signature: DebugTypeSignature) -> Option<(UnitIndex, UnitOffset)> {
        self.by_signature.get(&signature).copied()
    }

    /// The unit that contains an offset of .debug_info.
    pub fn at(&self, offset: DebugInfoOffset) -> Option<UnitIndex> {
        let is_before = |at: &Place| matches!(at, Place::Info(at) if at.0 <= offset.0);
        let index = self.list.partition_point(is_before).checked_sub(1)?;
        u32::try_from(index).ok().map(UnitIndex)
    }
}

impl DebugInfo {
    pub(crate) fn units(&self) -> &Units {
        self.units.get_or_init(|| {
            let dwarf = self.dwarf();
            let mut units = Units::default();
            let mut headers = dwarf.units();
            while let Ok(Some(header)) = headers.next() {
                add(&mut units, &header);
            }
            let mut headers = dwarf.type_units();
            while let Ok(Some(header)) = headers.next() {
                add(&mut units, &header);
            }
            units
        })
    }

    /// A unit with its abbreviations.
    pub(crate) fn unit<'a>(&self, dwarf: &Dwarf<'a>, index: UnitIndex) -> Result<Unit<'a>, Problem> {
        let damaged = |_| self.damaged("the header of a unit");
        let header = match self.units().list.get(index.0 as usize) {
            Some(Place::Info(offset)) => dwarf.unit_header(*offset).map_err(damaged)?,
            Some(Place::Types(offset)) => {
                let mut headers = dwarf.type_units();
                loop {
                    match headers.next().map_err(damaged)? {
                        Some(header) if header.debug_types_offset() == Some(*offset) => break header,
                        Some(_) => {}
                        None => return Err(self.damaged("the header of a unit")),
                    }
                }
            }
            None => return Err(self.damaged("the number of a unit")),
        };
        let unit = dwarf.unit(header).map_err(|_| self.damaged("a unit's abbreviations"))?;
        if let Ok(Some(file)) = unit.dwo_name() {
            let file = dwarf.attr_string(&unit, file);
            return Err(Problem::Split {
                module: self.module.clone(),
                file: file.map_or_else(|_| String::new(), |file| file.to_string_lossy().into_owned()),
            });
        }
        Ok(unit)
    }

    /// The unit whose code contains an address of the image.
    pub(crate) fn unit_of_address(&self, address: u64) -> Option<UnitIndex> {
        let ranges = self.units().ranges.get_or_init(|| self.find_ranges());
        let before = ranges.partition_point(|(start, ..)| *start <= address);
        // In linked programs ranges do not overlap, so a few candidates are enough.
        let mut candidates = ranges.get(..before)?.iter().rev().take(8);
        candidates.find(|(_, end, _)| address < *end).map(|(.., unit)| *unit)
    }

    fn find_ranges(&self) -> Vec<(u64, u64, UnitIndex)> {
        let dwarf = self.dwarf();
        let units = self.units();
        let mut found = Vec::new();
        let mut is_covered = vec![false; units.list.len()];
        let mut headers = dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            let Some(unit) = units.at(header.debug_info_offset()) else {
                continue;
            };
            let mut entries = header.entries();
            while let Ok(Some(entry)) = entries.next() {
                let end = entry.address().saturating_add(entry.length());
                found.push((entry.address(), end, unit));
                if let Some(covered) = is_covered.get_mut(unit.0 as usize) {
                    *covered = true;
                }
            }
        }
        for (index, covered) in (0_u32..).zip(&is_covered) {
            let index = UnitIndex(index);
            if *covered {
                continue;
            }
            let Ok(unit) = self.unit(&dwarf, index) else {
                continue;
            };
            if let Ok(mut ranges) = dwarf.unit_ranges(&unit) {
                while let Ok(Some(range)) = ranges.next() {
                    found.push((range.begin, range.end, index));
                }
            }
        }
        // Functions that the linker left out have the address 0.
        found.retain(|(start, end, _)| *start != 0 && start < end);
        found.sort_unstable();
        found
    }
}

fn add(units: &mut Units, header: &UnitHeader<Slice<'_>>) {
    let Ok(index) = u32::try_from(units.list.len()) else {
        return;
    };
    if units.list.len() >= UNITS_MAX {
        return;
    }
    if let UnitType::Type {
        type_signature,
        type_offset,
    } = header.type_()
    {
        units
            .by_signature
            .insert(type_signature, (UnitIndex(index), type_offset));
    }
    let info = header.debug_info_offset().map(Place::Info);
    units
        .list
        .extend(info.or_else(|| header.debug_types_offset().map(Place::Types)));
}
