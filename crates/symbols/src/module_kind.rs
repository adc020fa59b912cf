//! The kind of a module in its process.

use crate::elf::Elf;
use crate::linkage::{Linkage, Linking};

/// The kind of a module in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModuleKind {
    /// The program itself: `a.out`.
    Executable,
    /// A shared object.
    Library,
    /// The dynamic linker.
    Linker,
    /// The kernel's own shared object, which lies in no file.
    Vdso,
}

impl ModuleKind {
    /// The kind that a file appears to have, by its base name and headers.
    pub(crate) fn guess(name: &str, elf: &Elf, linkage: &Linkage) -> ModuleKind {
        let soname = linkage.soname.as_deref().unwrap_or(name);
        if [name, soname].iter().any(|name| {
            ["ld-linux", "ld-musl", "ld.so", "ld-2.", "ld64"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        }) {
            ModuleKind::Linker
        } else if linkage.interpreter.is_some() && linkage.soname.is_none()
            || linkage.linking != Linking::Dynamic
            || elf.elf_type == object::elf::ET_EXEC.0
        {
            ModuleKind::Executable
        } else {
            ModuleKind::Library
        }
    }
}
