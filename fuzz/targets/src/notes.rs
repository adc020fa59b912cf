//! Notes: of static probes, and of the linker.

use std::sync::Arc;

use nanoprobe_symbols::Module;

use crate::elf::interrogate;
use crate::image::around;

/// SHT_NOTE.
const NOTE_SECTION: u32 = 7;
/// PT_NOTE.
const NOTE_SEGMENT: u32 = 4;

/// The contents of a section and of a segment of notes.
pub fn notes(data: &[u8]) {
    let file = around(data, ".note.stapsdt", NOTE_SECTION, NOTE_SEGMENT);
    if let Ok(module) = Module::parse(Arc::new(file), "program") {
        interrogate(&module);
    }
}
