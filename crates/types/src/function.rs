//! Functions: their parameters and results, as in the source.
//!
//! A function has an entry with its address. That entry may leave the rest to another one: the abstract
//! entry that its inlined copies share (`DW_AT_abstract_origin`), or the entry within the class that
//! declares the function (`DW_AT_specification`). If there is an abstract entry, the parameters are taken
//! from it, because an optimised copy may lack some.

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
    /// The name, which may be empty.
    pub name: String,
    /// Its type.
    pub value_type: Type,
    /// Whether the parameter is of a class that may not be copied byte by byte, so that its address is passed.
    pub by_reference: bool,
}

/// The parameters and the results of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// The parameters in order. In a member function `this` is the first.
    pub parameters: Vec<Parameter>,
    /// The result; `None`: the function returns nothing.
    pub result: Option<Parameter>,
    /// Whether the function was compiled from Rust, whose calls differ from C's.
    pub rust: bool,
    /// Whether the function was compiled from Go. If so, `results` holds its results.
    pub go: bool,
    /// The results of a Go function.
    pub results: Vec<Parameter>,
    /// For a Go function: the index of the parameter before which the compiler passes an additional word.
    pub dictionary: Option<usize>,
    /// Whether the compiler says that calls of the function do not follow from its type.
    pub changed: bool,
    /// The places of the parameters at the entry, as the compiler describes them; empty: the compiler does not describe
    /// them.
    pub entered: Vec<Entered>,
}

impl DebugInfo {
    /// The function that begins at an address of the image.
    ///
    /// # Errors
    /// The function is not known, or its description makes no sense.
    pub fn function(&self, address: u64) -> Result<Signature, Problem> {
        let reader = self.reader();
        let unknown = || Problem::Unknown {
            module: self.module.clone(),
            what: format!("the function at {address:#x}"),
        };
        let unit = match self.unit_of_address(address) {
            Some(unit) => unit,
            // If a unit cannot be read, that is the likely reason.
            None => {
                return Err((0..self.units().count())
                    .find_map(|unit| self.split(&reader, unit))
                    .unwrap_or_else(unknown));
            }
        };
        let entry = reader.function_at(unit, address)?.ok_or_else(unknown)?;
        let mut signature = reader.signature(&entry)?;
        signature.entered = self.entered(&entry, address, signature.parameters.len());
        let is_stated = |place: &Entered| matches!(place, Entered::Words(_) | Entered::Behind(_));
        if signature.changed && !signature.entered.iter().any(is_stated) {
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

    /// A type by its kind and name.
    ///
    /// # Errors
    /// The type is not known, or its description makes no sense.
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

    /// The variable of that name. If there are several: the one at `address`, if its symbol gives the address.
    ///
    /// # Errors
    /// The variable is not known, or its description makes no sense.
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
        // The function has several parts. The first is its entry.
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
            // In Rust a function without a result returns (), which has no bytes.
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
                // The variable has a type, but it is not known which.
                Some(Err(_)) => Type::Foreign(Foreign::new(
                    "a type that cannot be read".to_owned(),
                    ForeignKind::Opaque(0),
                )),
            },
        }
    }

    /// The address of a variable; `None`: each thread has its own variable, or the address is computed.
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
