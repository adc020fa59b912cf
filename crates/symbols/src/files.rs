//! The edge: the one place that opens files.
//!
//! A process that may write to a folder on the way of a name decides what the name means. So a name is first looked up
//! without effects (O_PATH: no device is opened, no FIFO waited for). Then what was found is looked at, and that very
//! thing is opened for reading. A caller that knows which file is meant compares device and inode of what it gets.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::crc32::Crc32;
use crate::elf::Elf;
use crate::error::Error;
use crate::identity::FileIdentity;
use crate::image::Image;
use crate::linkage::Linkage;
use crate::module::Module;
use crate::parts::{FILE_BYTES_MAX, Parts};

/// What is read by [`read`] has at most so many bytes.
pub const WHOLE_BYTES_MAX: u64 = 256 << 20;

/// Where distributions put separate debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";
/// A debug file is summed up in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// Reads a module of ours, by its path; and where it is stripped and a separate debug file is installed, that file's
/// symbols. `path` is what the module calls itself.
///
/// # Errors
///
/// When the file cannot be read, or is no program or shared object. A debug file that cannot be used is ignored.
pub fn open(file: &Path, path: &Path) -> Result<Module, Error> {
    module_of(open_regular(file)?, Path::new("/"), path)
}

/// The module of an open file, of a process whose files lie below `root` (/proc/PID/root): its separate debug files are
/// looked for there first, then below ours.
///
/// The file is read, not mapped: a mapped file that someone truncates would kill us.
///
/// # Errors
///
/// As [`open`].
pub fn module_of(file: File, root: &Path, path: &Path) -> Result<Module, Error> {
    let metadata = file.metadata().map_err(|source| io(path, source))?;
    let image = Image::from(Parts::of(file, path)?);
    let module = Module::of_image(image, path.to_owned())?;
    let mut module = module.with_root(root).with_identity(FileIdentity::of(&metadata));
    if !module.has_full_symbols()
        && let Some((debug_path, image)) = find_debug_file(&module)
    {
        // A file that is found but no use leaves the module as it is: with the exported names only.
        let _unusable = module.add_debug_file(image, &debug_path);
    }
    Ok(module)
}

/// The separate debug file of a module, and its contents: by build-id, else by name and CRC (.gnu_debuglink).
///
/// Whatever lies there proves itself by its contents, wherever it came from. Below our own root only the folder of
/// distributions is looked into when the module belongs to another root: the process's folders are not ours.
pub fn find_debug_file(module: &Module) -> Option<(PathBuf, Image)> {
    let ours = Path::new("/");
    let mut roots = vec![module.root(), ours];
    roots.dedup();
    let linkage = module.linkage();
    if let Some(build_id) = &linkage.build_id
        && let Some(path) = build_id_path(Path::new(DEBUG_ROOT), build_id)
    {
        let found = roots.iter().find_map(|root| {
            let file = open_inside(root, &path).ok()?;
            let image = Image::from(Parts::of(file, &path).ok()?);
            let is_same = build_id_of(&image, &path).as_ref() == Some(build_id);
            is_same.then(|| (path.clone(), image))
        });
        if found.is_some() {
            return found;
        }
    }
    let (name, crc) = linkage.debug_link.as_ref()?;
    // A name, not a path: it is the file that says it.
    let name = Path::new(name).file_name()?;
    let directory = module.path().parent()?;
    let installed = Path::new(DEBUG_ROOT).join(directory.strip_prefix("/").unwrap_or(directory));
    let beside = [directory.to_owned(), directory.join(".debug")];
    let places = |root: &Path| {
        let is_its_own = root == module.root();
        beside.iter().filter(move |_| is_its_own).chain([&installed])
    };
    roots.iter().find_map(|root| {
        places(root).find_map(|place| {
            let path = place.join(name);
            let file = open_inside(root, &path).ok()?;
            let same = file.try_clone().ok()?;
            let image = Image::from(Parts::of(file, &path).ok()?);
            // A hole would cost time.
            (image.is_dense() && sum_of(&same) == Some(*crc)).then_some((path, image))
        })
    })
}

/// A regular file of ours, open for reading.
///
/// # Errors
///
/// When it is something else, or the operating system refuses.
pub fn open_regular(path: &Path) -> Result<File, Error> {
    open_inside(Path::new("/"), path)
}

/// A regular file by its path inside of a root (/proc/PID/root): no link, absolute or with `..`, leads out of it. With
/// our own root (`/`) the path is an ordinary one, and may be relative.
///
/// # Errors
///
/// As [`open_regular`]; also of a kernel before 5.6, which cannot look up so.
pub fn open_inside(root: &Path, path: &Path) -> Result<File, Error> {
    reopen(&look_up(root, path, OFlags::empty())?, path)
}

/// [`open_inside`] in a folder where every user may write: the last name of the path is no link.
///
/// # Errors
///
/// As [`open_inside`]; also when it is a link.
pub fn open_unlinked(root: &Path, path: &Path) -> Result<File, Error> {
    reopen(&look_up(root, path, OFlags::NOFOLLOW)?, path)
}

/// What a path leads to, as a process with this root would find it: an O_PATH descriptor.
fn look_up(root: &Path, path: &Path, flags: OFlags) -> Result<OwnedFd, Error> {
    // Another process renames at the same time: the kernel asks to try again.
    const TRIES: usize = 16;
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    if root == Path::new("/") {
        return rustix::fs::open(path, flags, Mode::empty()).map_err(|error| io(path, error.into()));
    }
    let failed = |error: rustix::io::Errno| io(&root.join(path.strip_prefix("/").unwrap_or(path)), error.into());
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, folder, Mode::empty()).map_err(failed)?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let mut last = rustix::io::Errno::AGAIN;
    for _ in 0..TRIES {
        match rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve) {
            Err(error @ (rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)) => last = error,
            done => return done.map_err(failed),
        }
    }
    Err(failed(last))
}

/// Opens for reading what a path has led to (an O_PATH descriptor): that very thing, if it is a regular file. `path` is
/// for messages.
///
/// # Errors
///
/// As [`open_regular`].
pub fn reopen(found: &OwnedFd, path: &Path) -> Result<File, Error> {
    let status = rustix::fs::fstat(found).map_err(|error| io(path, error.into()))?;
    if !rustix::fs::FileType::from_raw_mode(status.st_mode).is_file() {
        return Err(Error::Unreadable {
            path: path.into(),
            what: "not a regular file",
        });
    }
    // A lease that its owner holds on the file is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    let file = rustix::fs::openat(CWD, link, flags, Mode::empty());
    file.map(File::from).map_err(|error| io(path, error.into()))
}

/// The contents of a regular file of ours of at most [`WHOLE_BYTES_MAX`] bytes.
///
/// # Errors
///
/// When it is something else, or the operating system refuses.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    use std::io::Read;
    let file = open_regular(path)?;
    let metadata = file.metadata().map_err(|source| io(path, source))?;
    if metadata.len() > WHOLE_BYTES_MAX {
        return Err(Error::Unreadable {
            path: path.into(),
            what: "larger than 256 MiB",
        });
    }
    let mut bytes = Vec::new();
    file.take(WHOLE_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|source| io(path, source))?;
    Ok(bytes)
}

/// What a file of ours says of its linking.
pub(crate) fn linkage_of(path: &Path) -> Option<Linkage> {
    let parts = Parts::of(open_regular(path).ok()?, path).ok()?;
    Some(Linkage::of(&Elf::parse_headers(parts.into(), path).ok()?))
}

fn io(path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        path: path.into(),
        source,
    }
}

fn build_id_path(root: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(root.join(format!(".build-id/{first:02x}/{rest}.debug")))
}

fn build_id_of(image: &Image, path: &Path) -> Option<Vec<u8>> {
    Linkage::of(&Elf::parse_headers(image.clone(), path).ok()?).build_id
}

/// The CRC-32 of IEEE 802.3 of a whole file, as .gnu_debuglink has it; `None` where it cannot be read.
fn sum_of(file: &File) -> Option<u32> {
    use std::os::unix::fs::FileExt;
    let metadata = file.metadata().ok()?;
    let mut sum = Crc32::new();
    let mut piece = vec![0; PIECE_BYTES as usize];
    let mut at = 0;
    while at < metadata.len().min(FILE_BYTES_MAX) {
        let read = file.read_at(&mut piece, at).ok().filter(|read| *read > 0)?;
        sum.update(piece.get(..read)?);
        at += read as u64;
    }
    Some(sum.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_become_paths() {
        let path = build_id_path(Path::new("/usr/lib/debug"), &[0xab, 0x01, 0xcd]).unwrap();
        assert_eq!(path, Path::new("/usr/lib/debug/.build-id/ab/01cd.debug"));
        assert_eq!(build_id_path(Path::new("/"), &[1]), None);
    }

    #[test]
    fn only_regular_files_are_read() {
        for path in ["/dev/zero", "/"] {
            assert!(
                matches!(read(Path::new(path)), Err(Error::Unreadable { .. })),
                "{path} is no regular file"
            );
        }
        assert!(matches!(read(Path::new("/nonexistent")), Err(Error::Io { .. })));
    }
}
