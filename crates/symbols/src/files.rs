//! The edge: the one place that opens files, by path.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::module::Module;

/// Larger files are refused: browsers with their debugging information have 1 to 2 GiB.
pub const FILE_BYTES_MAX: u64 = 4 << 30;

/// Where distributions put separate debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";
/// O_NONBLOCK on Linux: opening a FIFO does not wait for a writer.
const NONBLOCK: i32 = 0o4000;

/// Reads a module, and where it is stripped and a separate debug file is installed, that file's symbols.
///
/// `file` is what is opened, `path` what the module calls itself: they differ for a process in another mount namespace
/// (/proc/PID/root/lib/libc.so.6) or of a deleted file (/proc/PID/map_files/...).
///
/// The file is read, not mapped: a mapped file that someone truncates would kill us.
///
/// # Errors
///
/// When the file cannot be read, or is no program or shared object. A debug file that cannot be used is ignored.
pub fn open(file: &Path, path: &Path) -> Result<Module, Error> {
    open_below(Path::new("/"), file, path)
}

/// [`open`] for a process whose files lie below `root` (/proc/PID/root): its separate debug files are looked for there
/// first, then below ours.
///
/// # Errors
///
/// As [`open`].
pub fn open_below(root: &Path, file: &Path, path: &Path) -> Result<Module, Error> {
    let mut module = Module::parse(Arc::new(read(file)?), path)?.with_root(root);
    if !module.has_full_symbols()
        && let Some((debug_path, bytes)) = find_debug_file(&module)
    {
        // A file that is found but no use leaves the module as it is: with the exported names only.
        let _unusable = module.add_debug_file(Arc::new(bytes), &debug_path);
    }
    Ok(module)
}

/// The separate debug file of a module, and its contents: by build-id, else by name and CRC (.gnu_debuglink).
pub fn find_debug_file(module: &Module) -> Option<(PathBuf, Vec<u8>)> {
    let mut roots = vec![module.root(), Path::new("/")];
    roots.dedup();
    let inside = |path: &Path| path.strip_prefix("/").unwrap_or(path).to_owned();
    // A path of ours may be a relative one.
    let below = |root: &Path, path: &Path| match root == Path::new("/") {
        true => path.to_owned(),
        false => root.join(inside(path)),
    };
    let linkage = module.linkage();
    if let Some(build_id) = &linkage.build_id
        && let Some(path) = build_id_path(Path::new(DEBUG_ROOT), build_id)
    {
        let same_id = |bytes: &Vec<u8>| build_id_of(bytes).as_ref() == Some(build_id);
        let found = roots.iter().find_map(|root| {
            let path = below(root, &path);
            let bytes = read(&path).ok().filter(same_id)?;
            Some((path, bytes))
        });
        if found.is_some() {
            return found;
        }
    }
    let (name, crc) = linkage.debug_link.as_ref()?;
    // A name, not a path: it is the file that says it.
    let name = Path::new(name).file_name()?;
    let directory = module.path().parent()?;
    let places = [
        directory.to_owned(),
        directory.join(".debug"),
        Path::new(DEBUG_ROOT).join(inside(directory)),
    ];
    roots.iter().find_map(|root| {
        places.iter().find_map(|place| {
            let path = below(root, place).join(name);
            let bytes = read(&path).ok().filter(|bytes| crc32(bytes) == *crc)?;
            Some((path, bytes))
        })
    })
}

/// The contents of a regular file of at most [`FILE_BYTES_MAX`] bytes.
///
/// # Errors
///
/// When it is something else, or the operating system refuses.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let io = |source| Error::Io {
        path: path.into(),
        source,
    };
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(NONBLOCK)
        .open(path)
        .map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(Error::Unreadable {
            path: path.into(),
            what: "not a regular file",
        });
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(Error::Unreadable {
            path: path.into(),
            what: "larger than 4 GiB",
        });
    }
    // What /proc/PID/exe and the like state as their size holds for ordinary file systems only.
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

fn build_id_path(root: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(root.join(format!(".build-id/{first:02x}/{rest}.debug")))
}

fn build_id_of(bytes: &[u8]) -> Option<Vec<u8>> {
    use object::Object;
    object::File::parse(bytes).ok()?.build_id().ok()?.map(<[u8]>::to_vec)
}

/// The CRC-32 of IEEE 802.3, as .gnu_debuglink has it.
fn crc32(bytes: &[u8]) -> u32 {
    let mut table = [0u32; 256];
    for (index, entry) in table.iter_mut().enumerate() {
        *entry = (0..8).fold(index as u32, |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)));
    }
    !bytes.iter().fold(!0, |crc, byte| {
        let entry = table.get(usize::from(*byte ^ crc as u8)).copied().unwrap_or(0);
        (crc >> 8) ^ entry
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_the_standard_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn build_ids_become_paths() {
        let path = build_id_path(Path::new("/usr/lib/debug"), &[0xab, 0x01, 0xcd]).unwrap();
        assert_eq!(path, Path::new("/usr/lib/debug/.build-id/ab/01cd.debug"));
        assert_eq!(build_id_path(Path::new("/"), &[1]), None);
    }

    #[test]
    fn only_regular_files_are_read() {
        assert!(matches!(read(Path::new("/dev/zero")), Err(Error::Unreadable { .. })));
        assert!(matches!(
            read(Path::new("/")),
            Err(Error::Unreadable { .. } | Error::Io { .. })
        ));
        assert!(matches!(read(Path::new("/nonexistent")), Err(Error::Io { .. })));
    }
}
