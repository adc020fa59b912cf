//! Entries (DIEs): reads them and their attributes, and follows their references.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{AttributeValue, DwAt, UnitOffset};

use crate::units::UnitIndex;
use crate::{DebugInfo, Die, Dwarf, Problem, STEPS_MAX, Slice, Unit};

/// The place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EntryId {
    pub unit: UnitIndex,
    /// Offset from the start of the unit.
    pub offset: usize,
}

/// An entry that was read.
pub(crate) struct Entry<'a> {
    pub id: EntryId,
    pub die: Die<'a>,
}

/// Reads the debug information to answer one question. Keeps the units that were needed so far.
pub(crate) struct Reader<'a> {
    pub info: &'a DebugInfo,
    pub dwarf: Dwarf<'a>,
    units: RefCell<HashMap<UnitIndex, Rc<Unit<'a>>>>,
}

impl DebugInfo {
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader {
            info: self,
            dwarf: self.dwarf(),
            units: RefCell::default(),
        }
    }

    /// A reader that can read location lists, too.
    pub(crate) fn reader_of_locations(&self) -> Reader<'_> {
        Reader {
            info: self,
            dwarf: self.sections.borrow(|section| {
                section.unpack();
                self.slice(section)
            }),
            units: RefCell::default(),
        }
    }
}

impl<'a> Reader<'a> {
    pub fn unit(&self, index: UnitIndex) -> Result<Rc<Unit<'a>>, Problem> {
        if let Some(unit) = self.units.borrow().get(&index) {
            return Ok(unit.clone());
        }
        let unit = Rc::new(self.info.unit(&self.dwarf, index)?);
        self.units.borrow_mut().insert(index, unit.clone());
        Ok(unit)
    }

    pub fn entry(&self, id: EntryId) -> Result<Entry<'a>, Problem> {
        let unit = self.unit(id.unit)?;
        let die = unit.entry(UnitOffset(id.offset));
        die.map(|die| Entry { id, die })
            .map_err(|_| self.info.damaged("an entry"))
    }

    /// Passes the direct children of an entry to `each`, until `each` returns `false`.
    pub fn children(&self, id: EntryId, mut each: impl FnMut(Entry<'a>) -> bool) -> Result<(), Problem> {
        let damaged = |_| self.info.damaged("an entry's children");
        let unit = self.unit(id.unit)?;
        let mut tree = unit.entries_tree(Some(UnitOffset(id.offset))).map_err(damaged)?;
        let mut children = tree.root().map_err(damaged)?.children();
        while let Some(child) = children.next().map_err(damaged)? {
            let die = child.entry().clone();
            let id = EntryId {
                unit: id.unit,
                offset: die.offset().0,
            };
            if !each(Entry { id, die }) {
                break;
            }
        }
        Ok(())
    }

    /// A string attribute.
    pub fn text(&self, entry: &Entry<'a>, attribute: DwAt) -> Option<String> {
        let value = entry.die.attr_value(attribute)?;
        self.string(entry.id.unit, value)
    }

    pub fn string(&self, unit: UnitIndex, value: AttributeValue<Slice<'a>>) -> Option<String> {
        let unit = self.unit(unit).ok()?;
        let text = self.dwarf.attr_string(&unit, value).ok()?;
        (text.len() <= NAME_BYTES_MAX).then(|| text.to_string_lossy().into_owned())
    }

    /// `DW_AT_name`. If the entry has no name: the name of the entry that it completes.
    pub fn name(&self, entry: &Entry<'a>) -> Option<String> {
        self.text(entry, gimli::DW_AT_name).or_else(|| {
            let origin = self.origin(entry).ok()??;
            self.text(&origin, gimli::DW_AT_name)
        })
    }

    /// The entry that this entry completes: the last in the chain of abstract origins and specifications.
    pub fn origin(&self, entry: &Entry<'a>) -> Result<Option<Entry<'a>>, Problem> {
        let mut found: Option<Entry<'a>> = None;
        for _ in 0..STEPS_MAX {
            let here = found.as_ref().unwrap_or(entry);
            let next = self
                .reference(here, gimli::DW_AT_abstract_origin)?
                .or(self.reference(here, gimli::DW_AT_specification)?);
            match next {
                Some(next) => found = Some(self.entry(next)?),
                None => break,
            }
        }
        Ok(found)
    }

    /// An attribute of the entry itself, or else of the entry that it completes.
    pub fn inherited(&self, entry: &Entry<'a>, attribute: DwAt) -> Result<Option<EntryId>, Problem> {
        if let Some(found) = self.reference(entry, attribute)? {
            return Ok(Some(found));
        }
        match self.origin(entry)? {
            Some(origin) => self.reference(&origin, attribute),
            None => Ok(None),
        }
    }

    /// The entry that an attribute refers to.
    pub fn reference(&self, entry: &Entry<'a>, attribute: DwAt) -> Result<Option<EntryId>, Problem> {
        let Some(value) = entry.die.attr_value(attribute) else {
            return Ok(None);
        };
        let at = |unit, offset: UnitOffset| Some(EntryId { unit, offset: offset.0 });
        Ok(match value {
            AttributeValue::UnitRef(offset) => at(entry.id.unit, offset),
            AttributeValue::DebugInfoRef(offset) => {
                let index = self.info.units().at(offset);
                let index = index.ok_or_else(|| self.info.damaged("a reference to no unit"))?;
                let unit = self.unit(index)?;
                let inside = offset.to_unit_offset(&unit.header);
                at(
                    index,
                    inside.ok_or_else(|| self.info.damaged("a reference to no unit"))?,
                )
            }
            AttributeValue::DebugTypesRef(signature) => {
                let found = self.info.units().of_signature(signature);
                let (index, offset) = found.ok_or_else(|| self.info.damaged("a type that is in no unit"))?;
                at(index, offset)
            }
            AttributeValue::DebugInfoRefSup(_) => {
                return Err(Problem::Supplementary {
                    module: self.info.module.clone(),
                });
            }
            _ => return Err(self.info.damaged("a reference of an unknown form")),
        })
    }
}

/// Longer names are ignored.
const NAME_BYTES_MAX: usize = 4096;

impl Entry<'_> {
    pub fn has(&self, attribute: DwAt) -> bool {
        self.die.has_attr(attribute)
    }

    pub fn number(&self, attribute: DwAt) -> Option<u64> {
        self.die.attr_value(attribute)?.udata_value()
    }

    pub fn is(&self, attribute: DwAt) -> bool {
        matches!(self.die.attr_value(attribute), Some(AttributeValue::Flag(true)))
    }

    /// The value of an enumerator, negative if its form is signed. Compilers write positive values in as few
    /// bytes as possible, without a sign.
    pub fn constant(&self, attribute: DwAt) -> Option<i64> {
        let value = self.die.attr_value(attribute)?;
        value
            .udata_value()
            .map(|value| value as i64)
            .or_else(|| value.sdata_value())
    }
}
