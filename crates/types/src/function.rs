//! Functions: their parameters and what they return, as the source has them.
//!
//! A function has an entry with its address, which may leave the rest to another: the abstract one that its inlined
//! copies share (`DW_AT_abstract_origin`), the one within the class that declares it (`DW_AT_specification`). The
//! parameters are those of the abstract entry where there is one, for of an optimised copy some may be missing.

use gimli::constants as dw;
use nanoprobe_lang::program::{Foreign, ForeignKind, Type};

use crate::entered::Entered;
use crate::entry::{Entry, EntryId, Reader};
use crate::generic::dictionary;
use crate::names::{Kind, Variable};
use crate::units::UnitIndex;
use crate::{DebugInfo, Problem};

/// The most parameters that are read.
const PARAMETERS_MAX: usize = 256;

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// May be empty.
    pub name: String,
    /// Its type.
    pub value_type: Type,
    /// It is of a class that cannot be copied byte by byte: its address is passed.
    pub by_reference: bool,
}

/// What a function takes and returns.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// In order; `this` is the first of a member function.
    pub parameters: Vec<Parameter>,
    /// `None`: nothing.
    pub result: Option<Parameter>,
    /// Compiled from Rust, whose calls differ from C's.
    pub rust: bool,
    /// Compiled from Go: `results` are what it returns.
    pub go: bool,
    /// Of a function of Go's.
    pub results: Vec<Parameter>,
    /// Of a function of Go's: before which parameter the compiler passes a word of its own.
    pub dictionary: Option<usize>,
    /// The compiler says that the function is called in another way than its type has it.
    pub changed: bool,
    /// Where the parameters are when the function is entered, by the compiler's word. Empty: it says nothing of that.
    pub entered: Vec<Entered>,
}

impl DebugInfo {
    /// The function that begins at an address of the image.
    ///
    /// # Errors
    /// It is not known, or what is known makes no sense.
    pub fn function(&self, address: u64) -> Result<Signature, Problem> {
        let reader = self.reader();
        let unknown = || Problem::Unknown {
            module: self.module.clone(),
            what: format!("the function at {address:#x}"),
        };
        let unit = match self.unit_of_address(address) {
            Some(unit) => unit,
            // A unit that cannot be read is why, if there is one.
            None => {
                return Err((0..self.units().count())
                    .find_map(|unit| self.split(&reader, unit))
                    .unwrap_or_else(unknown));
            }
        };
        let entry = reader.function_at(unit, address)?.ok_or_else(unknown)?;
        let mut signature = reader.signature(&entry)?;
        signature.entered = self.entered(&entry, address, signature.parameters.len());
        let is_told = |place: &Entered| matches!(place, Entered::Words(_) | Entered::Behind(_));
        if signature.changed && !signature.entered.iter().any(is_told) {
            return Err(Problem::Changed {
                module: self.module.clone(),
            });
        }
        Ok(signature)
    }

    fn split(&self, reader: &Reader<'_>, unit: u32) -> Option<Problem> {
        match reader.unit(UnitIndex(unit)) {
            Err(problem @ Problem::Split { .. }) => Some(problem),
            _ => None,
        }
    }

    /// A type by its name.
    ///
    /// # Errors
    /// It is not known, or what is known makes no sense.
    pub fn type_named(&self, kind: Kind, name: &str) -> Result<Type, Problem> {
        let reader = self.reader();
        match self.find(&reader, kind, name)? {
            Some(id) => reader.type_of(id),
            None => Err(Problem::Unknown {
                module: self.module.clone(),
                what: name.to_owned(),
            }),
        }
    }

    /// An enumerator's value.
    #[must_use]
    pub fn enumerator(&self, name: &str) -> Option<i64> {
        self.find_enumerator(&self.reader(), name).ok().flatten()
    }

    /// The variable of that name; of several the one at `address`, where that is known from its symbol.
    ///
    /// # Errors
    /// It is not known, or what is known makes no sense.
    pub fn variable(&self, name: &str, address: Option<u64>) -> Result<Variable, Problem> {
        let reader = self.reader();
        let place = |id: &EntryId| reader.entry(*id).ok().and_then(|entry| reader.address(&entry));
        let is_it = |id: &EntryId| address.is_none() || place(id) == address;
        let found = self.find_variables(&reader, name, |found| found.iter().any(is_it))?;
        let id = found.iter().find(|id| is_it(id)).ok_or_else(|| Problem::Unknown {
            module: self.module.clone(),
            what: name.to_owned(),
        })?;
        let entry = reader.entry(*id)?;
        let value_type = match reader.inherited(&entry, dw::DW_AT_type)? {
            Some(of) => reader.type_of(of)?,
            None => Type::Void,
        };
        Ok(Variable {
            address: place(id),
            value_type,
        })
    }
}

impl<'a> Reader<'a> {
    /// The entry of the function of a unit that begins at an address.
    fn function_at(&self, index: UnitIndex, address: u64) -> Result<Option<Entry<'a>>, Problem> {
        let damaged = |_| self.info.damaged("a unit's entries");
        let unit = self.unit(index)?;
        let mut entries = unit.entries_raw(None).map_err(damaged)?;
        let mut die = crate::Die::null();
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation().map_err(damaged)? else {
                continue;
            };
            if abbreviation.tag() != dw::DW_TAG_subprogram {
                entries.skip_attributes(abbreviation.attributes()).map_err(damaged)?;
                continue;
            }
            entries
                .read_attributes(abbreviation.attributes(), &mut die.attrs)
                .map_err(damaged)?;
            if self.starts_at(&unit, &die, address) {
                let id = EntryId {
                    unit: index,
                    offset: offset.0,
                };
                return self.entry(id).map(Some);
            }
        }
        Ok(None)
    }

    fn starts_at(&self, unit: &crate::Unit<'a>, die: &crate::Die<'a>, address: u64) -> bool {
        if let Some(low) = die.attr_value(dw::DW_AT_low_pc) {
            return self.dwarf.attr_address(unit, low).ok().flatten() == Some(address);
        }
        // In several parts: the first is its entry.
        let ranges = die.attr_value(dw::DW_AT_ranges);
        let ranges = ranges.and_then(|ranges| self.dwarf.attr_ranges(unit, ranges).ok().flatten());
        ranges.is_some_and(|mut ranges| matches!(ranges.next(), Ok(Some(range)) if range.begin == address))
    }

    pub(crate) fn signature(&self, entry: &Entry<'a>) -> Result<Signature, Problem> {
        let convention = entry.die.attr_value(dw::DW_AT_calling_convention);
        let go = self.language(entry.id.unit) == Some(dw::DW_LANG_Go);
        let abstract_entry = match self.reference(entry, dw::DW_AT_abstract_origin)? {
            Some(id) => Some(self.entry(id)?),
            None => None,
        };
        let described = abstract_entry.as_ref().unwrap_or(entry);
        let mut ids = Vec::new();
        let mut returned = Vec::new();
        self.children(described.id, |child| {
            if child.die.tag() == dw::DW_TAG_formal_parameter {
                match go && child.is(dw::DW_AT_variable_parameter) {
                    true => returned.push(child),
                    false => ids.push(child),
                }
            }
            ids.len() + returned.len() < PARAMETERS_MAX
        })?;
        let read = |list: &[Entry<'a>]| {
            list.iter()
                .map(|child| {
                    let of = self.inherited(child, dw::DW_AT_type)?;
                    Ok(self.parameter(self.name(child).unwrap_or_default(), of))
                })
                .collect::<Result<Vec<_>, Problem>>()
        };
        let (parameters, results) = (read(&ids)?, read(&returned)?);
        let result = self.inherited(described, dw::DW_AT_type)?;
        let result = result.map(|of| self.parameter(String::new(), Some(of)));
        if parameters.is_empty() && result.is_none() && self.is_lines_only(entry.id.unit) {
            return Err(Problem::LinesOnly {
                module: self.info.module.clone(),
            });
        }
        Ok(Signature {
            parameters,
            // Rust says that a function returns (), which is no bytes.
            result: result.filter(|result| result.value_type != Type::Void),
            rust: self.language(entry.id.unit) == Some(dw::DW_LANG_Rust),
            go,
            results,
            dictionary: go
                .then(|| dictionary(&self.name(described).unwrap_or_default()))
                .flatten(),
            changed: convention == Some(gimli::AttributeValue::CallingConvention(dw::DW_CC_nocall)),
            entered: Vec::new(),
        })
    }

    fn parameter(&self, name: String, of: Option<EntryId>) -> Parameter {
        let value_type = of.map(|of| self.type_of(of));
        Parameter {
            name,
            by_reference: of.is_some_and(|of| self.is_by_reference(of)),
            value_type: match value_type {
                Some(Ok(of)) if of != Type::Void => of,
                None | Some(Ok(_)) => Type::Void,
                // So much is known that it is something.
                Some(Err(_)) => Type::Foreign(Foreign::new(
                    "a type that cannot be read".to_owned(),
                    ForeignKind::Opaque(0),
                )),
            },
        }
    }

    /// Where a variable is, when that is one address for all threads.
    fn address(&self, entry: &Entry<'a>) -> Option<u64> {
        let expression = entry.die.attr_value(dw::DW_AT_location)?.exprloc_value()?;
        let unit = self.unit(entry.id.unit).ok()?;
        let mut operations = expression.operations(unit.encoding());
        match (operations.next(), operations.next()) {
            (Ok(Some(gimli::Operation::Address { address })), Ok(None)) => Some(address),
            (Ok(Some(gimli::Operation::AddressIndex { index })), Ok(None)) => self.dwarf.address(&unit, index).ok(),
            _ => None,
        }
    }
}
