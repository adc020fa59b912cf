//! The tables that HotSpot exports: fields, sizes of types, and constants. Debuggers use them to read a process or a
//! core file.

use std::collections::HashMap;

use crate::memory::{Memory, bytes, half, word};

/// Tables have fewer entries: HotSpot has some 800.
const ENTRIES_MAX: u64 = 4096;
/// An entry is smaller.
const STRIDE_MAX: u64 = 256;
/// No needed field has a longer name.
const NAME_MAX: u64 = 96;
const PAGE: u64 = 4096;

/// The symbols of libjvm.so that lead to the tables.
pub const SYMBOLS: [&str; 16] = [
    "gHotSpotVMStructs",
    "gHotSpotVMStructEntryArrayStride",
    "gHotSpotVMStructEntryTypeNameOffset",
    "gHotSpotVMStructEntryFieldNameOffset",
    "gHotSpotVMStructEntryTypeStringOffset",
    "gHotSpotVMStructEntryIsStaticOffset",
    "gHotSpotVMStructEntryOffsetOffset",
    "gHotSpotVMStructEntryAddressOffset",
    "gHotSpotVMTypes",
    "gHotSpotVMTypeEntryArrayStride",
    "gHotSpotVMTypeEntryTypeNameOffset",
    "gHotSpotVMTypeEntrySizeOffset",
    "gHotSpotVMIntConstants",
    "gHotSpotVMIntConstantEntryArrayStride",
    "gHotSpotVMIntConstantEntryNameOffset",
    "gHotSpotVMIntConstantEntryValueOffset",
];

/// A field of a structure of HotSpot's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Its type, as the source has it.
    pub(super) type_name: String,
    /// Its offset in the structure; the address of a static one.
    pub(super) place: u64,
}

/// The contents of the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Structures {
    fields: HashMap<(String, String), Field>,
    statics: HashMap<(String, String), u64>,
    sizes: HashMap<String, u64>,
    constants: HashMap<String, u32>,
}

/// Reads the tables of one process.
struct Reader<'a> {
    memory: &'a dyn Memory,
    symbols: &'a HashMap<String, u64>,
    names: HashMap<u64, String>,
}

impl Reader<'_> {
    fn number(&self, symbol: &str) -> Option<u64> {
        word(self.memory, *self.symbols.get(symbol)?)
    }

    /// Offset of a member of an entry.
    fn offset(&self, symbol: &str) -> Option<u64> {
        self.number(symbol).filter(|offset| *offset < STRIDE_MAX)
    }

    fn name(&mut self, address: u64) -> Option<String> {
        if let Some(name) = self.names.get(&address) {
            return Some(name.clone());
        }
        let name = text(self.memory, address, NAME_MAX)?;
        self.names.insert(address, name.clone());
        Some(name)
    }

    /// The addresses of a table's entries, which end with one without a name.
    fn entries(&self, table: &str, stride: &str, name_offset: u64) -> Option<Vec<u64>> {
        let (start, stride) = (self.number(table)?, self.number(stride)?);
        if stride == 0 || stride > STRIDE_MAX {
            return None;
        }
        let mut entries = Vec::new();
        for index in 0..ENTRIES_MAX {
            let entry = start.checked_add(index * stride)?;
            if word(self.memory, entry.checked_add(name_offset)?)? == 0 {
                return Some(entries);
            }
            entries.push(entry);
        }
        None
    }
}

impl Structures {
    /// Reads the tables by the addresses of [`SYMBOLS`]. `None`: they cannot be read, or not yet.
    pub fn read(memory: &dyn Memory, symbols: &HashMap<String, u64>) -> Option<Structures> {
        let names = HashMap::new();
        let mut reader = Reader { memory, symbols, names };
        let mut structures = Structures::default();
        structures.read_fields(&mut reader)?;
        structures.read_numbers(&mut reader)?;
        Some(structures)
    }

    fn read_fields(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let offset = |reader: &Reader<'_>, name: &str| reader.offset(&format!("gHotSpotVMStructEntry{name}Offset"));
        let of_type = offset(reader, "TypeName")?;
        let of_name = offset(reader, "FieldName")?;
        let of_string = offset(reader, "TypeString")?;
        let (of_static, of_offset) = (offset(reader, "IsStatic")?, offset(reader, "Offset")?);
        let of_address = offset(reader, "Address")?;
        for entry in reader.entries("gHotSpotVMStructs", "gHotSpotVMStructEntryArrayStride", of_type)? {
            let pointer = |offset: u64| word(reader.memory, entry.checked_add(offset)?);
            let (owner, name, string) = (pointer(of_type)?, pointer(of_name)?, pointer(of_string)?);
            let is_static = half(reader.memory, entry.checked_add(of_static)?)? != 0;
            let place = pointer(if is_static { of_address } else { of_offset })?;
            let (Some(owner), Some(name)) = (reader.name(owner), reader.name(name)) else {
                continue;
            };
            if is_static {
                self.statics.insert((owner, name), place);
            } else {
                let type_name = reader.name(string).unwrap_or_default();
                self.fields.insert((owner, name), Field { type_name, place });
            }
        }
        (!self.fields.is_empty()).then_some(())
    }

    fn read_numbers(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let of_name = reader.offset("gHotSpotVMTypeEntryTypeNameOffset")?;
        let of_size = reader.offset("gHotSpotVMTypeEntrySizeOffset")?;
        for entry in reader.entries("gHotSpotVMTypes", "gHotSpotVMTypeEntryArrayStride", of_name)? {
            let name = word(reader.memory, entry.checked_add(of_name)?)?;
            let size = word(reader.memory, entry.checked_add(of_size)?)?;
            if let Some(name) = reader.name(name) {
                self.sizes.insert(name, size);
            }
        }
        let of_name = reader.offset("gHotSpotVMIntConstantEntryNameOffset")?;
        let of_value = reader.offset("gHotSpotVMIntConstantEntryValueOffset")?;
        let stride = "gHotSpotVMIntConstantEntryArrayStride";
        for entry in reader.entries("gHotSpotVMIntConstants", stride, of_name)? {
            let name = word(reader.memory, entry.checked_add(of_name)?)?;
            let value = half(reader.memory, entry.checked_add(of_value)?)?;
            if let Some(name) = reader.name(name) {
                self.constants.insert(name, value);
            }
        }
        Some(())
    }

    pub(super) fn field(&self, owner: &str, name: &str) -> Option<&Field> {
        self.fields.get(&(owner.to_owned(), name.to_owned()))
    }

    /// The offset of a field, which lies within a structure.
    pub(super) fn offset(&self, owner: &str, name: &str) -> Option<u32> {
        const STRUCTURE_MAX: u64 = 1 << 16;
        let place = self.field(owner, name)?.place;
        (place < STRUCTURE_MAX).then_some(place as u32)
    }

    /// The address of a static field.
    pub(super) fn address(&self, owner: &str, name: &str) -> Option<u64> {
        self.statics.get(&(owner.to_owned(), name.to_owned())).copied()
    }

    pub(super) fn size(&self, name: &str) -> Option<u32> {
        const STRUCTURE_MAX: u64 = 1 << 16;
        let size = *self.sizes.get(name)?;
        (size < STRUCTURE_MAX).then_some(size as u32)
    }

    pub(super) fn constant(&self, name: &str) -> Option<u32> {
        self.constants.get(name).copied()
    }
}

/// A string that ends with a zero, of at most so many bytes; `None`: it is longer, or cannot be read.
pub(super) fn text(memory: &dyn Memory, address: u64, most: u64) -> Option<String> {
    let mut read = Vec::new();
    while (read.len() as u64) < most {
        let from = address.checked_add(read.len() as u64)?;
        // The string may end in the last bytes that are mapped.
        let count = (PAGE - from % PAGE).min(most - read.len() as u64);
        let piece = bytes(memory, from, count as usize)?;
        let end = piece.iter().position(|byte| *byte == 0);
        read.extend_from_slice(piece.get(..end.unwrap_or(piece.len()))?);
        if end.is_some() {
            return String::from_utf8(read).ok();
        }
    }
    None
}
