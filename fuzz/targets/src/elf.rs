//! ELF files, as bytes in memory and as a file that is read in parts: both must give the same answers.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::{AddressRange, FileOffset, Module, files, unwind_rows};

/// The number of functions of a module that are examined one by one.
const FUNCTIONS_MAX: usize = 64;

/// Asks a module all questions.
pub(crate) fn interrogate(module: &Module) {
    let names: BTreeSet<String> = module
        .functions()
        .iter()
        .take(FUNCTIONS_MAX)
        .map(|function| function.name.to_string())
        .collect();
    for name in &names {
        let _symbol = module.symbol(name);
        let _readable = nanoprobe_symbols::readable(name);
    }
    let _addresses = module.addresses_of(&names);
    for function in module.functions().iter().take(FUNCTIONS_MAX) {
        let extent = module.function_extent(function);
        assert!(!extent.is_empty());
        let _code = module.code_at(extent.start, extent.len());
        let _padding = (module.padding_after(extent.end), module.gap_after(extent.end));
        let _entered = module.entered_from_elsewhere(extent);
        let _pointers = module.code_pointers(extent);
        let _call = module.follows_call(extent.end);
        assert!(module.resolve(extent.start).is_some());
    }
    for range in module.executable_ranges().take(FUNCTIONS_MAX) {
        let short = AddressRange::new(range.start.0, range.start.0.saturating_add(range.len().min(4096)));
        let _entered = module.entered_from_elsewhere(short);
    }
    let _rows = unwind_rows(module);
    let _static = module.static_probes();
    let _relocations = (module.relocations(), module.copied_variables());
    let _names = module.names();
    let _bias = module.bias_of_mapping(TargetAddress(0x7f00_0000_0000), FileOffset(0x1000));
    let _vdso = module.image_address(FileOffset(0x40));
}

/// An ELF file.
pub fn elf(data: &[u8]) {
    let mut whole = Module::parse(Arc::new(data.to_vec()), "program");
    if let Ok(module) = &mut whole {
        module.name_the_unnamed();
    }
    let parts =
        file_of(data).and_then(|file| files::module_of(file, Path::new("/nonexistent"), Path::new("program")).ok());
    if let Ok(module) = &whole {
        interrogate(module);
    }
    if let (Ok(whole), Some(parts)) = (&whole, &parts) {
        // If a table is too large for any program, it is not read from a file. Otherwise both answers are the same.
        assert_eq!(whole.linkage(), parts.linkage());
        assert_eq!(whole.functions().len(), parts.functions().len());
        interrogate(parts);
    }
}

/// A temporary file with these bytes, which no other process uses.
fn file_of(data: &[u8]) -> Option<std::fs::File> {
    use std::io::Write as _;
    let file = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    let mut file = std::fs::File::from(file);
    file.write_all(data).ok()?;
    Some(file)
}
