//! The places of a function's parameters at its entry, as LLVM's debug information gives them.
//!
//! LLVM changes how a function is called if it knows all callers. It omits unused parameters, even one
//! half of a slice, and passes the target of a pointer instead of the pointer. It marks only some of the
//! changed functions (`DW_CC_nocall`). But it describes the places of all parameters that are left:
//!
//! ```text
//!   DW_AT_location   a list                 the place at the first instruction: a register, two in pieces, memory at
//!                                           one
//!                    a single expression    a slot of the frame, which is filled after the entry: says nothing of
//!                                           the entry
//!                    none, or no such entry the parameter is nowhere
//! ```

use gimli::{Expression, Operation, constants as dw};

use crate::entry::{Entry, Reader};
use crate::units::UnitIndex;
use crate::{DebugInfo, Slice};

/// The most entries of location lists that are read for a function.
const LOCATIONS_MAX: u32 = 1 << 16;
/// The most operations of a location: two registers in pieces.
const OPERATIONS_MAX: usize = 4;

/// The place of a parameter at the first instruction of its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The debug information says nothing about the entry.
    Unstated,
    /// The parameter is nowhere: the compiler has left it out.
    Nowhere,
    /// In words of the arguments: the first eight bytes in one word (0 is rdi, ...), and the rest in another. `None`:
    /// this part is in no place.
    Words([Option<u8>; 2]),
    /// In memory, at the address in a word of the arguments.
    Behind(u8),
}

impl DebugInfo {
    /// The places of the parameters when a function is entered at an address of the image. The result is
    /// empty unless the compiler is one that changes calls without a new name.
    pub(crate) fn entered(&self, function: &Entry<'_>, address: u64, parameters: usize) -> Vec<Entered> {
        let reader = self.reader_of_locations();
        if !reader.is_llvm(function.id.unit) {
            return Vec::new();
        }
        reader.entered(function, address, parameters).unwrap_or_default()
    }
}

impl<'a> Reader<'a> {
    fn entered(&self, function: &Entry<'_>, address: u64, parameters: usize) -> Option<Vec<Entered>> {
        let function = self.entry(function.id).ok()?;
        let origin = self.reference(&function, dw::DW_AT_abstract_origin).ok()?;
        let numbers = self.numbers(origin.unwrap_or(function.id), parameters);
        let mut places = vec![Some(Entered::Nowhere); parameters];
        let mut budget = LOCATIONS_MAX;
        let mut left = 4 * places.len() + 64;
        self.children(function.id, |child| {
            if child.die.tag() == dw::DW_TAG_formal_parameter {
                let shared = self.reference(&child, dw::DW_AT_abstract_origin).ok().flatten();
                let number = numbers.get(&shared.unwrap_or(child.id)).copied();
                if let Some(place) = number.and_then(|number| places.get_mut(number)) {
                    *place = self.entered_in(&child, address, &mut budget);
                }
            }
            left -= 1;
            left > 0
        })
        .ok()?;
        // Unoptimised code has no descriptions of the time before the frame is made. In optimised code a
        // parameter without a description at the entry is nowhere.
        let is_stated = |place: &Option<Entered>| matches!(place, Some(Entered::Words(_) | Entered::Behind(_)));
        let late = match places.iter().any(is_stated) {
            true => Entered::Nowhere,
            false => Entered::Unstated,
        };
        Some(places.into_iter().map(|place| place.unwrap_or(late)).collect())
    }

    /// The place of one parameter; `None`: only places after the entry are described.
    fn entered_in(&self, parameter: &Entry<'a>, address: u64, budget: &mut u32) -> Option<Entered> {
        let Some(value) = parameter.die.attr_value(dw::DW_AT_location) else {
            return Some(Entered::Nowhere);
        };
        if value.exprloc_value().is_some() {
            return Some(Entered::Unstated);
        }
        let list = self.unit(parameter.id.unit).ok();
        let list = list.and_then(|unit| self.dwarf.attr_locations(&unit, value).ok().flatten());
        let Some(mut list) = list else {
            return Some(Entered::Unstated);
        };
        while let Ok(Some(place)) = list.next() {
            let Some(less) = budget.checked_sub(1) else {
                return Some(Entered::Unstated);
            };
            *budget = less;
            if (place.range.begin..place.range.end).contains(&address) {
                return Some(self.words(place.data, parameter.id.unit).unwrap_or(Entered::Unstated));
            }
        }
        None
    }

    /// A location as words of the arguments; `None`: the location is of another kind.
    fn words(&self, location: Expression<Slice<'a>>, unit: UnitIndex) -> Option<Entered> {
        let read = self.unit(unit).ok()?;
        let mut operations = location.operations(read.encoding());
        let mut found = Vec::new();
        while let Some(operation) = operations.next().ok()? {
            found.push(operation);
            if found.len() > OPERATIONS_MAX {
                return None;
            }
        }
        const WORD: Option<u64> = Some(64);
        let bits = |operation: &Operation<Slice<'a>>| match operation {
            Operation::Piece {
                size_in_bits,
                bit_offset: None,
            } => Some(*size_in_bits),
            _ => None,
        };
        Some(match &found[..] {
            [Operation::Register { register }] => Entered::Words([Some(word_of(*register)?), None]),
            [
                Operation::RegisterOffset {
                    register, offset: 0, ..
                },
            ] => Entered::Behind(word_of(*register)?),
            // The cases in order: both halves have a place, only the first, only the second.
            [
                Operation::Register { register: first },
                piece,
                Operation::Register { register: second },
                last,
            ] if bits(piece) == WORD && bits(last).is_some() => {
                Entered::Words([Some(word_of(*first)?), Some(word_of(*second)?)])
            }
            [Operation::Register { register }, piece, rest @ ..]
                if bits(piece) == WORD && rest.iter().all(|rest| bits(rest).is_some()) =>
            {
                Entered::Words([Some(word_of(*register)?), None])
            }
            [piece, Operation::Register { register }, last] if bits(piece) == WORD && bits(last).is_some() => {
                Entered::Words([None, Some(word_of(*register)?)])
            }
            _ => return None,
        })
    }
}

/// The word of the arguments that a register holds. The register is given by its number in DWARF.
fn word_of(register: gimli::Register) -> Option<u8> {
    Some(match register.0 {
        5 => 0,
        4 => 1,
        1 => 2,
        2 => 3,
        8 => 4,
        9 => 5,
        _ => return None,
    })
}
