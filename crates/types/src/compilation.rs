//! Facts about the compilation of a unit: the language, the compiler, the files.

use gimli::{AttributeValue, DwLang};

use crate::entry::{Entry, Reader};
use crate::units::UnitIndex;

impl<'a> Reader<'a> {
    /// The language from which a unit was compiled.
    pub fn language(&self, index: UnitIndex) -> Option<DwLang> {
        let unit = self.unit(index).ok()?;
        let root = unit.entry(unit.header.root_offset()).ok()?;
        match root.attr_value(gimli::DW_AT_language)? {
            AttributeValue::Language(language) => Some(language),
            _ => None,
        }
    }

    /// Whether the unit, compiled by gcc, describes only lines (`-g1`).
    pub fn is_lines_only(&self, index: UnitIndex) -> bool {
        self.producer(index)
            .is_some_and(|producer| producer.split(' ').any(|option| option == "-g1"))
    }

    /// Whether the unit was compiled by clang, rustc or another compiler of LLVM.
    pub fn is_llvm(&self, index: UnitIndex) -> bool {
        let made_by = |producer: String| ["LLVM", "clang", "rustc"].iter().any(|name| producer.contains(name));
        self.producer(index).is_some_and(made_by)
    }

    fn producer(&self, index: UnitIndex) -> Option<String> {
        let unit = self.unit(index).ok()?;
        let root = unit.entry(unit.header.root_offset()).ok()?;
        self.string(index, root.attr_value(gimli::DW_AT_producer)?)
    }

    /// Whether the language is C, where a tag means one type throughout the program.
    pub fn is_c(&self, index: UnitIndex) -> bool {
        matches!(
            self.language(index),
            Some(gimli::DW_LANG_C | gimli::DW_LANG_C89 | gimli::DW_LANG_C99 | gimli::DW_LANG_C11 | gimli::DW_LANG_C17)
        )
    }

    /// Whether the language is C++, whose classes may have their own functions for copying.
    pub fn is_cpp(&self, index: UnitIndex) -> bool {
        matches!(
            self.language(index),
            Some(
                gimli::DW_LANG_C_plus_plus
                    | gimli::DW_LANG_C_plus_plus_03
                    | gimli::DW_LANG_C_plus_plus_11
                    | gimli::DW_LANG_C_plus_plus_14
                    | gimli::DW_LANG_C_plus_plus_17
                    | gimli::DW_LANG_C_plus_plus_20
            )
        )
    }

    /// The source file that declares an entry, by the name under which the compiler got it.
    pub fn declaring_file(&self, entry: &Entry<'a>) -> Option<String> {
        let number = match entry.die.attr_value(gimli::DW_AT_decl_file)? {
            AttributeValue::FileIndex(number) => number,
            other => other.udata_value()?,
        };
        let unit = self.unit(entry.id.unit).ok()?;
        let program = unit.line_program.as_ref()?;
        let file = program.header().file(number)?;
        let directory = file.directory(program.header());
        let directory = directory.and_then(|directory| self.string(entry.id.unit, directory));
        let name = self.string(entry.id.unit, file.path_name())?;
        Some(format!("{}/{name}", directory.unwrap_or_default()))
    }
}
