//! Modules of files: of programs, their libraries, and their separate debug files.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::debug_file::DebugFile;
use crate::elf::Elf;
use crate::error::Error;
use crate::identity::FileIdentity;
use crate::image::Image;
use crate::linkage::Linkage;
use crate::module::Module;
use crate::opening::io;
pub use crate::opening::{WHOLE_BYTES_MAX, open_inside, open_regular, open_unlinked, read, reopen};
use crate::parts::Parts;

/// Reads a module of ours, by its path. If it is stripped and a separate debug file is installed, reads that file's
/// symbols, too. `path` is the module's own path.
///
/// # Errors
///
/// When the file cannot be read, or is no program or shared object. A debug file that cannot be used is ignored.
pub fn open(file: &Path, path: &Path) -> Result<Module, Error> {
    module_of(open_regular(file)?, Path::new("/"), path)
}

/// The module of an open file of a process whose files lie below `root` (/proc/PID/root). Its separate debug files are
/// searched there first, then below our root. The one that is found stays open until functions are asked for.
///
/// The file is read, not mapped: the truncation of a mapped file would kill us.
///
/// # Errors
///
/// As [`open`].
pub fn module_of(file: File, root: &Path, path: &Path) -> Result<Module, Error> {
    let mut module = without_debug_file(file, root, path)?;
    if !module.has_full_symbols()
        && let Some((debug_path, image)) = find_debug_file(&module)
    {
        // A useless debug file leaves the module as it is, with the exported names only.
        let _unusable = module.add_debug_file(image.clone(), &debug_path);
        module.name_the_unnamed();
        module.drop_held_debug_file(&image);
    } else {
        module.name_the_unnamed();
    }
    Ok(module)
}

/// The module of an open file of this process. Its debug file is searched when the first question needs it. Until then,
/// this process need not hold the debug file open.
///
/// # Errors
///
/// As [`open`].
pub fn module_of_self(file: File, root: &Path, path: &Path) -> Result<Module, Error> {
    let mut module = without_debug_file(file, root, path)?;
    if !module.has_full_symbols() {
        module.search_debug_file();
        module.name_the_unnamed();
    }
    Ok(module)
}

fn without_debug_file(file: File, root: &Path, path: &Path) -> Result<Module, Error> {
    let metadata = file.metadata().map_err(|source| io(path, source))?;
    let image = Image::from(Parts::of(file, path)?);
    let module = Module::of_image(image, path.to_owned())?;
    Ok(module.with_root(root).with_identity(FileIdentity::of(&metadata)))
}

/// The separate debug file of a module, and its contents: by build-id, else by name and CRC (.gnu_debuglink).
///
/// The contents of the file prove that it belongs to the module, wherever the file lies. If the module belongs to
/// another root, our own root is only searched in the folder of distributions, because the process's folders do not
/// exist there.
pub fn find_debug_file(module: &Module) -> Option<(PathBuf, Image)> {
    DebugFile::of(module.root(), module.path(), module.linkage()).find()
}

/// The part of a file on our own root that describes its linking.
pub(crate) fn linkage_of(path: &Path) -> Option<Linkage> {
    let parts = Parts::of(open_regular(path).ok()?, path).ok()?;
    Some(Linkage::of(&Elf::parse_headers(parts.into(), path).ok()?))
}
