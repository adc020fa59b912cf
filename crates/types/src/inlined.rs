//! Inlined copies of functions: their entries, and the places of their parameters there.
//!
//! ```text
//!   DW_TAG_subprogram              shared by all copies: name, parameters and their types
//!        ^ abstract_origin
//!   DW_TAG_inlined_subroutine      one copy: entered at DW_AT_entry_pc, else low_pc, else the first of its ranges
//!        DW_TAG_formal_parameter   DW_AT_location at that address, or DW_AT_const_value
//! ```
//!
//! A copy has no call and no calling convention: a parameter is wherever the compiler has put it, or
//! nowhere. Simple places are read: a register, memory at a register and an offset (also from the frame's
//! base), a constant. For all others there is a reason why not. Manual: DWARF 5, 3.3.8 Inlinable and
//! Inlined Subroutines; 2.6 Location Descriptions.

use std::cell::OnceCell;
use std::collections::HashMap;

use gimli::{AttributeValue, Expression, Operation, constants as dw};
use nanoprobe_lang::program::{ForeignKind, Type};

use crate::entry::{Entry, EntryId, Reader};
use crate::function::Signature;
use crate::units::UnitIndex;
use crate::{DebugInfo, Problem, Slice};

/// How many copies of functions with one name are found at most.
const COPIES_MAX: usize = 1 << 16;
/// The most ranges of a copy that are searched for its start.
const RANGES_MAX: usize = 64;
/// The most entries of location lists that are read for one question.
const LOCATIONS_MAX: u32 = 1 << 22;

/// The copies of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct Inlined {
    /// The name that `answers` gave to the function.
    pub name: String,
    /// The parameters and results of the function, as in its source.
    pub signature: Signature,
    /// The copies, in the order of the debug information.
    pub copies: Vec<InlinedCopy>,
}

/// One copy.
#[derive(Clone, Debug, PartialEq)]
pub struct InlinedCopy {
    /// Address of the copy's first instruction in the image.
    pub address: u64,
    /// The places of the parameters at that address, in the order of the signature; or why a place is not known.
    pub parameters: Vec<Result<Held, &'static str>>,
}

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// In a general register, by its number in DWARF: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 ... r15.
    Register(u8),
    /// In memory, at the sum of a register and an offset.
    At(u8, i64),
    /// In memory, at an offset from the canonical frame address.
    InFrame(i64),
    /// At an address of the image.
    Image(u64),
    /// The value is this constant.
    Constant(i64),
}

impl DebugInfo {
    /// The inlined copies of all functions for which `answers` yields a name. Its argument is the linker's
    /// name of a function, or the source's name if there is none. It must answer only to `wanted`, a name
    /// without wildcards, and to names of which `wanted` is the demangled form or the end.
    ///
    /// # Errors
    /// The debug information makes no sense.
    pub fn inlined(&self, wanted: &str, answers: impl Fn(&str) -> Option<String>) -> Result<Vec<Inlined>, Problem> {
        let reader = self.reader();
        let located = OnceCell::new();
        let mut found: HashMap<EntryId, Option<(Inlined, Numbers)>> = HashMap::new();
        let mut budget = LOCATIONS_MAX;
        let mut order = Vec::new();
        let mut count = 0;
        let mut problem = None;
        for index in self.units_of_copies(&reader, wanted, &answers) {
            let copies = match reader.copies(index) {
                Ok(copies) => copies,
                // A damaged unit hides only its own copies.
                Err(error) => {
                    problem.get_or_insert(error);
                    continue;
                }
            };
            for copy in copies {
                let Ok(entry) = reader.entry(copy.entry) else { continue };
                let Ok(Some(origin)) = reader.reference(&entry, dw::DW_AT_abstract_origin) else {
                    continue;
                };
                let inlined = found.entry(origin).or_insert_with(|| {
                    let function = reader.entry(origin).ok()?;
                    let name = answers(&reader.linkage_name(&function)?)?;
                    order.push(origin);
                    let signature = reader.signature(&function).ok().filter(|found| !found.go)?;
                    let numbers = reader.numbers(origin, signature.parameters.len());
                    let copies = Vec::new();
                    Some((
                        Inlined {
                            name,
                            signature,
                            copies,
                        },
                        numbers,
                    ))
                });
                let Some((inlined, numbers)) = inlined else { continue };
                let Some(address) = reader.entered_at(&entry).filter(|_| count < COPIES_MAX) else {
                    continue;
                };
                count += 1;
                let at = At {
                    address,
                    function: copy.function,
                };
                let located = located.get_or_init(|| self.reader_of_locations());
                let parameters = located.parameters(&entry, numbers, &inlined.signature, at, &mut budget);
                inlined.copies.push(InlinedCopy { address, parameters });
            }
        }
        let taken = order.iter().filter_map(|origin| found.remove(origin)?);
        let found: Vec<Inlined> = taken.map(|(inlined, _)| inlined).collect();
        match problem {
            Some(problem) if found.is_empty() => Err(problem),
            _ => Ok(found),
        }
    }
}

/// The parameters of the entry that all copies share, each with its index in the signature.
pub(crate) type Numbers = HashMap<EntryId, usize>;

/// The copy, and the address in the copy, for which the places of parameters are wanted.
#[derive(Clone, Copy)]
struct At {
    address: u64,
    /// The function that contains the copy.
    function: EntryId,
}

/// A copy that was found.
struct Copy {
    entry: EntryId,
    /// The function that contains the copy.
    function: EntryId,
}

impl<'a> Reader<'a> {
    /// All copies in a unit.
    fn copies(&self, index: UnitIndex) -> Result<Vec<Copy>, Problem> {
        let damaged = |_| self.info.damaged("a unit's entries");
        let unit = match self.unit(index) {
            Err(Problem::Split { .. }) => return Ok(Vec::new()),
            other => other?,
        };
        let mut copies = Vec::new();
        let mut function = EntryId { unit: index, offset: 0 };
        let mut entries = unit.entries_raw(None).map_err(damaged)?;
        while !entries.is_empty() {
            let offset = entries.next_offset().0;
            let Some(abbreviation) = entries.read_abbreviation().map_err(damaged)? else {
                continue;
            };
            let entry = EntryId { unit: index, offset };
            match abbreviation.tag() {
                dw::DW_TAG_subprogram => function = entry,
                dw::DW_TAG_inlined_subroutine => copies.push(Copy { entry, function }),
                _ => {}
            }
            entries.skip_attributes(abbreviation.attributes()).map_err(damaged)?;
        }
        Ok(copies)
    }

    /// The linker's name of a function; if there is none, the function's name in the source.
    pub(crate) fn linkage_name(&self, function: &Entry<'a>) -> Option<String> {
        let attributes = [dw::DW_AT_linkage_name, dw::DW_AT_MIPS_linkage_name];
        let own = attributes
            .into_iter()
            .find_map(|attribute| self.text(function, attribute));
        own.or_else(|| {
            let origin = self.origin(function).ok()??;
            attributes
                .into_iter()
                .find_map(|attribute| self.text(&origin, attribute))
        })
        .or_else(|| self.name(function))
    }

    /// The address at which a copy is entered.
    fn entered_at(&self, entry: &Entry<'a>) -> Option<u64> {
        let unit = self.unit(entry.id.unit).ok()?;
        let address = |value| self.dwarf.attr_address(&unit, value).ok().flatten();
        let low = entry.die.attr_value(dw::DW_AT_low_pc).and_then(address);
        let base = || {
            low.or_else(|| {
                let ranges = entry.die.attr_value(dw::DW_AT_ranges)?;
                let mut ranges = self.dwarf.attr_ranges(&unit, ranges).ok()??;
                let ranges = std::iter::from_fn(|| ranges.next().ok()?).take(RANGES_MAX);
                ranges
                    .map(|range| (range.begin, range.end))
                    .find(|(begin, end)| begin < end)
                    .map(|(begin, _)| begin)
            })
        };
        let found = match entry.die.attr_value(dw::DW_AT_entry_pc) {
            None => base(),
            Some(value) => match (address(value), value.udata_value()) {
                (Some(entry), _) => Some(entry),
                // In DWARF 5 the attribute may also be a distance.
                (None, Some(distance)) => base()?.checked_add(distance),
                (None, None) => base(),
            },
        };
        // Functions that the linker left out have the address 0.
        found.filter(|address| *address != 0)
    }

    /// The parameters of a function, each with its index in a signature of `count` parameters.
    pub(crate) fn numbers(&self, origin: EntryId, count: usize) -> Numbers {
        let mut numbers = Numbers::new();
        let _incomplete = self.children(origin, |child| {
            if child.die.tag() == dw::DW_TAG_formal_parameter {
                numbers.insert(child.id, numbers.len());
            }
            numbers.len() < count
        });
        numbers
    }

    /// The places of a copy's parameters.
    fn parameters(
        &self,
        copy: &Entry<'a>,
        numbers: &Numbers,
        signature: &Signature,
        at: At,
        budget: &mut u32,
    ) -> Vec<Result<Held, &'static str>> {
        const LEFT_OUT: &str = "the compiler has left it out of this inlined copy";
        let mut places: Vec<Result<Held, &'static str>> = vec![Err(LEFT_OUT); signature.parameters.len()];
        let mut left = 4 * places.len() + 64;
        let _incomplete = self.children(copy.id, |child| {
            if child.die.tag() == dw::DW_TAG_formal_parameter
                && let Ok(Some(of)) = self.reference(&child, dw::DW_AT_abstract_origin)
                && let Some(number) = numbers.get(&of)
                && let (Some(place), Some(parameter)) = (places.get_mut(*number), signature.parameters.get(*number))
            {
                *place = match is_plain(&parameter.value_type) && !parameter.by_reference {
                    true => self.held(&child, at, budget),
                    false => Err("in an inlined copy only integers and pointers can be read"),
                };
            }
            left -= 1;
            left > 0
        });
        places
    }

    fn held(&self, parameter: &Entry<'a>, at: At, budget: &mut u32) -> Result<Held, &'static str> {
        const UNKNOWN: &str = "its place in this inlined copy is not recorded";
        const GONE: &str = "its value is not kept at the entry of this inlined copy";
        if let Some(value) = parameter.constant(dw::DW_AT_const_value) {
            return Ok(Held::Constant(value));
        }
        let unit = self.unit(parameter.id.unit).map_err(|_| UNKNOWN)?;
        let value = parameter.die.attr_value(dw::DW_AT_location).ok_or(GONE)?;
        if let Some(expression) = value.exprloc_value() {
            return self.plain(expression, parameter.id.unit, at.function);
        }
        let mut list = self.dwarf.attr_locations(&unit, value).ok().flatten().ok_or(UNKNOWN)?;
        while let Ok(Some(place)) = list.next() {
            *budget = budget.checked_sub(1).ok_or(UNKNOWN)?;
            if (place.range.begin..place.range.end).contains(&at.address) {
                return self.plain(place.data, parameter.id.unit, at.function);
            }
        }
        Err(GONE)
    }

    fn plain(
        &self,
        expression: Expression<Slice<'a>>,
        unit: UnitIndex,
        function: EntryId,
    ) -> Result<Held, &'static str> {
        const COMPUTED: &str = "it is computed, or in pieces, in this inlined copy";
        const VECTOR: &str = "it is in a register that D does not read, in this inlined copy";
        let read = self.unit(unit).map_err(|_| COMPUTED)?;
        let mut operations = expression.operations(read.encoding());
        let mut next = || operations.next().map_err(|_| COMPUTED);
        let (first, second, third) = (next()?, next()?, next()?);
        let general = |register: gimli::Register| u8::try_from(register.0).ok().filter(|number| *number < 16);
        match (first, second, third) {
            (Some(Operation::Register { register }), None, _) => general(register).map(Held::Register).ok_or(VECTOR),
            (
                Some(Operation::RegisterOffset {
                    register,
                    offset,
                    base_type,
                }),
                None,
                _,
            ) if base_type.0 == 0 => general(register)
                .map(|register| Held::At(register, offset))
                .ok_or(VECTOR),
            // The value is computed and so has no place, but it is simply the value of a register.
            (
                Some(Operation::RegisterOffset {
                    register,
                    offset: 0,
                    base_type,
                }),
                Some(Operation::StackValue),
                None,
            ) if base_type.0 == 0 => general(register).map(Held::Register).ok_or(VECTOR),
            (Some(Operation::UnsignedConstant { value }), Some(Operation::StackValue), None) => {
                Ok(Held::Constant(value as i64))
            }
            (Some(Operation::SignedConstant { value }), Some(Operation::StackValue), None) => Ok(Held::Constant(value)),
            (Some(Operation::Address { address }), None, _) => Ok(Held::Image(address)),
            (Some(Operation::FrameOffset { offset }), None, _) => self.in_frame(function, offset).ok_or(COMPUTED),
            _ => Err(COMPUTED),
        }
    }

    /// The place at an offset from the frame's base of a function.
    fn in_frame(&self, function: EntryId, offset: i64) -> Option<Held> {
        let entry = self.entry(function).ok()?;
        let base = entry
            .die
            .attr_value(dw::DW_AT_frame_base)
            .and_then(|value| match value {
                AttributeValue::Exprloc(expression) => Some(expression),
                _ => None,
            })?;
        let unit = self.unit(function.unit).ok()?;
        let mut operations = base.operations(unit.encoding());
        match (operations.next().ok()??, operations.next().ok()?) {
            (Operation::CallFrameCFA, None) => Some(Held::InFrame(offset)),
            (Operation::Register { register }, None) => Some(Held::At(
                u8::try_from(register.0).ok().filter(|number| *number < 16)?,
                offset,
            )),
            (
                Operation::RegisterOffset {
                    register, offset: base, ..
                },
                None,
            ) => {
                let register = u8::try_from(register.0).ok().filter(|number| *number < 16)?;
                Some(Held::At(register, base.checked_add(offset)?))
            }
            _ => None,
        }
    }
}

/// Whether D can read a value of this type as one number.
fn is_plain(of: &Type) -> bool {
    match of {
        Type::Integer(_) | Type::Pointer(_) => true,
        Type::Foreign(foreign) => matches!(foreign.kind(), ForeignKind::Enumeration { .. }),
        _ => false,
    }
}
