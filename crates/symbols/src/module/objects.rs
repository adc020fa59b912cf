//! Names for a module's data: variables, tables of virtual functions.

use super::Module;
use crate::address::ImageAddress;
use crate::elf::Elf;
use crate::symbol_table::{self, SymbolKind};

/// If a (hostile) file has more data symbols than this, only the first of them are used.
const OBJECTS_MAX: usize = 1 << 20;

/// A symbol of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DataObject {
    start: u64,
    bytes: u64,
    name: Box<str>,
}

impl Module {
    /// The data symbol that holds an address, and the address's distance from its start. Only a symbol with a size
    /// holds addresses. The symbols are those of the module's own file.
    pub fn object_at(&self, address: ImageAddress) -> Option<(&str, u64)> {
        let objects = self.answers.objects.get_or_init(|| objects(&self.elf));
        let before = objects.partition_point(|object| object.start <= address.0);
        let object = objects.get(before.checked_sub(1)?)?;
        let offset = address.0.checked_sub(object.start)?;
        (offset < object.bytes).then_some((&*object.name, offset))
    }
}

/// Sorted by start. Of several symbols at one address, a global symbol with the longest extent is kept.
fn objects(elf: &Elf) -> Vec<DataObject> {
    let mut found: Vec<(DataObject, bool)> = Vec::new();
    symbol_table::for_each(elf, |symbol| {
        if symbol.kind == SymbolKind::Object && symbol.size > 0 {
            let object = DataObject {
                start: symbol.address.0,
                bytes: symbol.size,
                name: symbol.name.as_ref().into(),
            };
            found.push((object, symbol.global));
        }
        found.len() < OBJECTS_MAX
    });
    let rank = |(object, global): &(DataObject, bool)| (object.start, !object.bytes, !global);
    found.sort_by_key(rank);
    found.dedup_by_key(|(object, _)| object.start);
    found.into_iter().map(|(object, _)| object).collect()
}
