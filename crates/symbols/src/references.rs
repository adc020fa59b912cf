//! How code refers to pieces of code: by calls, by jumps, by their addresses.
//!
//! All code is searched at every byte, since without symbols nothing says where instructions begin. Bytes that look
//! like a jump to the start of a piece by chance are rare: one in a hundred thousand. At worst they give a piece a
//! wrong name.

use object::elf;

use crate::address::{AddressRange, ImageAddress};
use crate::elf::Elf;
use crate::function::FunctionKind;
use crate::functions::Functions;
use crate::pointers;

/// How many owners that begin before an address are searched for the one that contains it.
const NESTING_MAX: usize = 4;

/// The owner of some code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A function with a name, by its index.
    Function(usize),
    /// A piece without a name, by its number.
    Piece(usize),
}

/// The owners of all code.
pub(crate) struct Owners {
    /// Sorted by start.
    list: Vec<(AddressRange, Owner)>,
}

impl Owners {
    /// The owners of code: the functions and the pieces. No piece overlaps a function.
    pub fn of(functions: &Functions, pieces: impl Iterator<Item = AddressRange>) -> Owners {
        let named = functions.list.iter().enumerate();
        let named = named.filter(|(_, function)| function.kind == FunctionKind::Code);
        let mut list: Vec<(AddressRange, Owner)> = named
            .map(|(index, function)| (function.extent(), Owner::Function(index)))
            .collect();
        list.extend(pieces.enumerate().map(|(number, range)| (range, Owner::Piece(number))));
        list.sort_by_key(|(range, _)| *range);
        Owners { list }
    }

    /// The owner of the code at an address.
    pub fn at(&self, address: ImageAddress) -> Option<Owner> {
        self.holding(address).map(|(_, owner)| owner)
    }

    fn holding(&self, address: ImageAddress) -> Option<(AddressRange, Owner)> {
        let behind = self.list.partition_point(|(range, _)| range.start <= address);
        let before = self.list.get(..behind)?.iter().rev().take(NESTING_MAX);
        before.copied().find(|(range, _)| range.contains(address))
    }

    /// Whether a jump in `range` leads into code of `owner`, except to its first instruction.
    pub fn is_left_into(&self, elf: &Elf, range: AddressRange, owner: Owner) -> bool {
        let code = elf.at_address(range.start.0, range.len()).unwrap_or_default();
        each_displacement(code, range.start.0, |before, target| {
            matches!(Form::of(before), Some(Form::Jump | Form::Condition))
                && self
                    .holding(ImageAddress(target))
                    .is_some_and(|(of, found)| found == owner && of.start.0 != target)
        })
    }
}

/// The way in which an instruction refers to an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Call,
    Jump,
    Condition,
    /// The instruction takes the address.
    Address,
}

impl Form {
    /// The form of an instruction, from the bytes before its displacement.
    fn of(before: &[u8]) -> Option<Form> {
        match before {
            [.., 0xe8] => Some(Form::Call),
            [.., 0xe9] => Some(Form::Jump),
            [.., 0x0f, 0x80..=0x8f] => Some(Form::Condition),
            // lea register, [rip + x]
            [.., 0x48 | 0x4c, 0x8d, operand] if operand & 0xc7 == 0x05 => Some(Form::Address),
            _ => None,
        }
    }
}

/// Takes every four bytes of `code`, which lies at `start`, as a displacement. Calls `take` with the bytes before the
/// displacement, and the address to which the displacement would lead. Ends when `take` accepts one.
fn each_displacement(code: &[u8], start: u64, mut take: impl FnMut(&[u8], u64) -> bool) -> bool {
    for (at, bytes) in code.array_windows::<4>().enumerate() {
        let next = start.wrapping_add(at as u64 + 4);
        let target = next.wrapping_add_signed(i32::from_le_bytes(*bytes).into());
        if take(code.get(..at).unwrap_or_default(), target) {
            return true;
        }
    }
    false
}

/// The ways in which other code reaches a piece.
#[derive(Clone, Copy, Default)]
struct Reached {
    is_called: bool,
    is_jumped_to: bool,
    by: Option<Owner>,
    /// By more than one owner, or by code without an owner.
    by_others: bool,
    on_condition: bool,
}

/// The ways in which each of the pieces is reached.
pub(crate) struct References {
    /// The addresses at which the pieces begin, ascending.
    starts: Vec<u64>,
    reached: Vec<Reached>,
}

impl References {
    /// Searches all code for references to `starts`, which ascend.
    pub fn find(elf: &Elf, starts: Vec<u64>, owners: &Owners) -> References {
        let mut found = References {
            reached: vec![Reached::default(); starts.len()],
            starts,
        };
        let filter = Filter::of(&found.starts);
        for range in &elf.executable {
            let Some(code) = elf.at_address(range.start.0, range.len()) else {
                continue;
            };
            each_displacement(code, range.start.0, |before, target| {
                if filter.may_hold(target)
                    && let Some(form) = Form::of(before)
                {
                    let from = range.start.0.wrapping_add(before.len() as u64).wrapping_sub(1);
                    found.note(target, form, ImageAddress(from), owners);
                }
                false
            });
            // In a program at a fixed address, instructions contain absolute addresses.
            if elf.elf_type == elf::ET_EXEC.0 {
                for word in code.array_windows::<4>() {
                    let value = u64::from(u32::from_le_bytes(*word));
                    if filter.may_hold(value) {
                        found.note(value, Form::Address, ImageAddress(0), owners);
                    }
                }
            }
        }
        if let Ok(number) = found.starts.binary_search(&elf.entry) {
            found.set_called(number);
        }
        found
    }

    fn note(&mut self, target: u64, form: Form, from: ImageAddress, owners: &Owners) {
        let Ok(number) = self.starts.binary_search(&target) else {
            return;
        };
        let Some(reached) = self.reached.get_mut(number) else {
            return;
        };
        match form {
            Form::Call | Form::Address => reached.is_called = true,
            Form::Jump | Form::Condition => {
                let by = owners.at(from);
                // A jump from within the piece to its first instruction (a loop) proves nothing.
                if by == Some(Owner::Piece(number)) {
                    return;
                }
                reached.by_others |= by.is_none() || reached.is_jumped_to && reached.by != by;
                reached.by = by;
                reached.is_jumped_to = true;
                reached.on_condition |= form == Form::Condition;
            }
        }
    }

    fn set_called(&mut self, number: usize) {
        if let Some(reached) = self.reached.get_mut(number) {
            reached.is_called = true;
        }
    }

    /// Notes which of these pieces have their addresses in the module's data.
    pub fn find_pointers(&mut self, elf: &Elf, undecided: &[usize]) {
        if undecided.is_empty() {
            return;
        }
        let mut wanted: Vec<(u64, usize)> = undecided
            .iter()
            .filter_map(|number| Some((*self.starts.get(*number)?, *number)))
            .collect();
        wanted.sort_unstable();
        let starts: Vec<u64> = wanted.iter().map(|(start, _)| *start).collect();
        let filter = Filter::of(&starts);
        pointers::each(elf, &mut |_, value| {
            if filter.may_hold(value)
                && let Ok(at) = starts.binary_search(&value)
                && let Some((_, number)) = wanted.get(at)
            {
                self.set_called(*number);
            }
        });
    }

    /// Whether a piece is called, or its address is taken.
    pub fn is_called(&self, number: usize) -> bool {
        self.reached.get(number).is_some_and(|reached| reached.is_called)
    }

    /// Whether other code jumps to a piece.
    pub fn is_jumped_to(&self, number: usize) -> bool {
        self.reached.get(number).is_some_and(|reached| reached.is_jumped_to)
    }

    /// The only owner whose jumps lead to a piece, and whether one of the jumps is conditional.
    pub fn only_jump(&self, number: usize) -> Option<(Owner, bool)> {
        let reached = self.reached.get(number).filter(|reached| !reached.by_others)?;
        Some((reached.by?, reached.on_condition))
    }
}

/// A filter that quickly rejects most addresses that do not belong to a set.
struct Filter {
    bits: Vec<u64>,
    shift: u32,
    lowest: u64,
    span: u64,
}

impl Filter {
    /// The number of bits for each address of the set. One in 16 of all other addresses passes.
    const BITS: usize = 16;

    fn of(sorted: &[u64]) -> Filter {
        let bits = (sorted.len() * Filter::BITS).next_power_of_two().max(64);
        let lowest = sorted.first().copied().unwrap_or(0);
        let mut filter = Filter {
            bits: vec![0; bits / 64],
            shift: 64 - bits.trailing_zeros(),
            lowest,
            span: sorted.last().map_or(0, |last| last - lowest),
        };
        for address in sorted {
            let (word, bit) = filter.place(*address);
            if let Some(word) = filter.bits.get_mut(word) {
                *word |= bit;
            }
        }
        filter
    }

    fn place(&self, address: u64) -> (usize, u64) {
        let number = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        ((number / 64) as usize, 1 << (number % 64))
    }

    fn may_hold(&self, address: u64) -> bool {
        if address.wrapping_sub(self.lowest) > self.span {
            return false;
        }
        let (word, bit) = self.place(address);
        self.bits.get(word).is_some_and(|word| word & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_holds_what_it_was_given_and_little_else() {
        let addresses: Vec<u64> = (0..5000).map(|number| 0x1000 + number * 48).collect();
        let filter = Filter::of(&addresses);
        assert!(addresses.iter().all(|address| filter.may_hold(*address)));
        let others = (0x1000..0x1000 + 5000 * 48).filter(|address| (address - 0x1000) % 48 != 0);
        let (mut all, mut passed) = (0, 0);
        for address in others {
            all += 1;
            passed += usize::from(filter.may_hold(address));
        }
        assert!(passed * 8 < all, "{passed} of {all}");
        assert!(!filter.may_hold(0xfff) && !filter.may_hold(u64::MAX));
        assert!(!Filter::of(&[]).may_hold(7));
    }

    #[test]
    fn references_are_known_by_the_bytes_before_them() {
        for (before, is_jump) in [
            (&[0xe9][..], true),
            (&[0x0f, 0x84], true),
            (&[0xe8], false),
            (&[0x84], false),
        ] {
            let jumps = matches!(Form::of(before), Some(Form::Jump | Form::Condition));
            assert_eq!(jumps, is_jump, "{before:x?}");
        }
        assert!(Form::of(&[0x4c, 0x8d, 0x3d]) == Some(Form::Address));
        assert!(Form::of(&[0x4c, 0x8d, 0x7d]).is_none() && Form::of(&[]).is_none());
    }
}
