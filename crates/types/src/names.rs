//! Types, enumerators and variables by their names.
//!
//! Units are read in their order, each once. So a search that finds its name in the first unit reads only
//! that one. Only declarations outside of functions count. A declaration in a namespace has two names:
//! with the namespace, `ns::request`, and the last part alone, if nothing else has that name.

use std::collections::HashMap;

use gimli::DwTag;
use gimli::constants as dw;

use crate::entry::{Entry, EntryId, Reader};
use crate::units::UnitIndex;
use crate::{DebugInfo, Problem};

/// The deepest namespace that is read.
const DEPTH_MAX: usize = 64;

/// If a name would be longer than this with its namespaces, it is kept without them.
const SCOPED_BYTES_MAX: usize = 4096;

/// The kind of type that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A structure, class or union.
    Structure,
    /// An enumeration.
    Enumeration,
    /// A typedef or base type.
    Named,
}

/// A variable of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Its address in the image; `None`: each thread has its own, or the address is computed.
    pub address: Option<u64>,
    /// Its type.
    pub value_type: nanoprobe_lang::program::Type,
}

/// The names of the units that were read so far.
#[derive(Default)]
pub(crate) struct Names {
    /// The index of the first unit that was not read yet.
    next: u32,
    types: HashMap<(Kind, Box<str>), EntryId>,
    /// Types by the last part of their name.
    short: HashMap<(Kind, Box<str>), EntryId>,
    enumerators: HashMap<Box<str>, i64>,
    variables: HashMap<Box<str>, Vec<EntryId>>,
    /// Structures in namespaces that are only declared, with their full names.
    declared: HashMap<EntryId, Box<str>>,
}

impl DebugInfo {
    /// The entry of the first type with that kind and name.
    pub(crate) fn find(&self, reader: &Reader<'_>, kind: Kind, name: &str) -> Result<Option<EntryId>, Problem> {
        let key = (kind, Box::from(name));
        let found = self.search(reader, |names| names.types.get(&key).copied())?;
        match found {
            Some(found) => Ok(Some(found)),
            None => self.search(reader, |names| names.short.get(&key).copied()),
        }
    }

    /// The value of the first enumerator with that name.
    pub(crate) fn find_enumerator(&self, reader: &Reader<'_>, name: &str) -> Result<Option<i64>, Problem> {
        self.search(reader, |names| names.enumerators.get(name).copied())
    }

    /// All variables with that name. Variables of one file do not hide variables of another file.
    pub(crate) fn find_variables(
        &self,
        reader: &Reader<'_>,
        name: &str,
        enough: impl Fn(&[EntryId]) -> bool,
    ) -> Result<Vec<EntryId>, Problem> {
        let found = self.search(reader, |names| {
            let found = names.variables.get(name)?;
            enough(found).then(|| found.clone())
        })?;
        let all = || {
            let names = self.names.lock().ok()?;
            names.variables.get(name).cloned()
        };
        Ok(found.or_else(all).unwrap_or_default())
    }

    /// The full name of a structure that is only declared.
    pub(crate) fn qualified_name(&self, reader: &Reader<'_>, id: EntryId) -> Option<String> {
        let read = |names: &Names| (names.next > id.unit.0).then(|| names.declared.get(&id).cloned());
        let found = self.search(reader, read).ok()??;
        match found {
            Some(name) => Some(name.into()),
            None => reader.name(&reader.entry(id).ok()?),
        }
    }

    /// Reads units until `look` finds something, or all units were read.
    fn search<T>(&self, reader: &Reader<'_>, look: impl Fn(&Names) -> Option<T>) -> Result<Option<T>, Problem> {
        let mut names = self.names.lock().map_err(|_| self.damaged("it cannot be read"))?;
        let count = self.units().count();
        let mut problem = None;
        loop {
            if let Some(found) = look(&names) {
                return Ok(Some(found));
            }
            if names.next >= count {
                break;
            }
            let unit = UnitIndex(names.next);
            names.next += 1;
            if let Err(error) = scan(reader, unit, &mut names) {
                // A damaged unit hides only its own names.
                problem.get_or_insert(error);
            }
        }
        problem.map_or(Ok(None), Err)
    }
}

/// Reads the names of a unit.
fn scan(reader: &Reader<'_>, index: UnitIndex, names: &mut Names) -> Result<(), Problem> {
    let damaged = |_| reader.info.damaged("a unit's entries");
    let unit = reader.unit(index)?;
    let mut entries = unit.entries_raw(None).map_err(damaged)?;
    let mut entry = Entry {
        id: EntryId { unit: index, offset: 0 },
        die: crate::Die::null(),
    };
    // The namespaces, classes and enumerations around the next entry: the depth and full name of each.
    let mut scopes: Vec<(isize, String)> = Vec::new();
    // Everything deeper than this is inside of a function.
    let mut inside: Option<isize> = None;
    while !entries.is_empty() {
        let depth = entries.next_depth();
        let offset = entries.next_offset().0;
        let Some(abbreviation) = entries.read_abbreviation().map_err(damaged)? else {
            continue;
        };
        if inside.is_some_and(|function| depth > function) {
            entries.skip_attributes(abbreviation.attributes()).map_err(damaged)?;
            continue;
        }
        inside = None;
        scopes.retain(|(at, _)| *at < depth);
        let tag = abbreviation.tag();
        if !is_named(tag) {
            let is_unit = matches!(
                tag,
                dw::DW_TAG_compile_unit | dw::DW_TAG_partial_unit | dw::DW_TAG_type_unit
            );
            if !is_unit && abbreviation.has_children() {
                inside = Some(depth);
            }
            entries.skip_attributes(abbreviation.attributes()).map_err(damaged)?;
            continue;
        }
        entry.id.offset = offset;
        entry.die.tag = tag;
        entries
            .read_attributes(abbreviation.attributes(), &mut entry.die.attrs)
            .map_err(damaged)?;
        let name = reader.name(&entry);
        let before = scopes.last().map_or("", |(_, scope)| scope.as_str());
        let whole = within(before, name.as_deref());
        if let Some(name) = &name {
            names.add(&entry, name, &whole);
        }
        if abbreviation.has_children() && scopes.len() < DEPTH_MAX {
            // Enumerators belong to the scope around their enumeration.
            let scope = match tag {
                dw::DW_TAG_enumeration_type => before.to_owned(),
                _ => whole,
            };
            scopes.push((depth, scope));
        }
    }
    Ok(())
}

/// Whether entries with this tag have names that can be searched for, or contain such entries.
fn is_named(tag: DwTag) -> bool {
    let is_other = matches!(tag, dw::DW_TAG_namespace | dw::DW_TAG_enumerator | dw::DW_TAG_variable);
    is_other || kind_of(tag).is_some()
}

/// The kind of type that an entry with this tag describes.
fn kind_of(tag: DwTag) -> Option<Kind> {
    match tag {
        dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => Some(Kind::Structure),
        dw::DW_TAG_enumeration_type => Some(Kind::Enumeration),
        dw::DW_TAG_typedef | dw::DW_TAG_base_type => Some(Kind::Named),
        _ => None,
    }
}

/// A name with the names of the scopes around it.
fn within(scope: &str, name: Option<&str>) -> String {
    match name {
        Some(name) if !scope.is_empty() && scope.len() + name.len() < SCOPED_BYTES_MAX => format!("{scope}::{name}"),
        Some(name) => name.to_owned(),
        None => scope.to_owned(),
    }
}

impl Names {
    /// Adds an entry under its name, and under its name with its scopes.
    fn add(&mut self, entry: &Entry<'_>, name: &str, whole: &str) {
        if let Some(kind) = kind_of(entry.die.tag) {
            if entry.is(dw::DW_AT_declaration) {
                if kind == Kind::Structure && whole != name {
                    self.declared.insert(entry.id, whole.into());
                }
            } else {
                if whole != name {
                    self.short.entry((kind, name.into())).or_insert(entry.id);
                }
                self.types.entry((kind, whole.into())).or_insert(entry.id);
            }
        }
        match entry.die.tag {
            dw::DW_TAG_enumerator => {
                if let Some(value) = entry.constant(dw::DW_AT_const_value) {
                    self.enumerators.entry(name.into()).or_insert(value);
                }
            }
            dw::DW_TAG_variable if entry.has(dw::DW_AT_location) => {
                self.variables.entry(name.into()).or_default().push(entry.id);
            }
            _ => {}
        }
    }
}
