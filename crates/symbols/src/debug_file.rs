//! The separate debug file of a module: how it is found, and the proof that it belongs to the module.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::crc32::Crc32;
use crate::elf::Elf;
use crate::image::Image;
use crate::linkage::Linkage;
use crate::opening::open_inside;
use crate::parts::{FILE_BYTES_MAX, Parts};

/// The folder in which distributions put separate debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";
/// The size of the pieces in which a debug file's sum is computed.
const PIECE_BYTES: u64 = 1 << 20;

/// The data in a module about its separate debug file.
#[derive(Clone, Debug)]
pub(crate) struct DebugFile {
    root: PathBuf,
    path: PathBuf,
    build_id: Option<Vec<u8>>,
    link: Option<(String, u32)>,
}

impl DebugFile {
    /// For the module at `path` in a process whose files lie below `root`.
    pub fn of(root: &Path, path: &Path, linkage: &Linkage) -> DebugFile {
        DebugFile {
            root: root.to_owned(),
            path: path.to_owned(),
            build_id: linkage.build_id.clone(),
            link: linkage.debug_link.clone(),
        }
    }

    /// Opens the file and reads its headers; `None` if no such file is installed.
    pub fn open(&self) -> Option<Elf> {
        let (path, image) = self.find()?;
        Elf::parse_headers(image, &path).ok()
    }

    /// The file's path and contents: by build-id, else by name and CRC.
    pub fn find(&self) -> Option<(PathBuf, Image)> {
        let mut roots = vec![self.root.as_path(), Path::new("/")];
        roots.dedup();
        if let Some(build_id) = &self.build_id
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
        let (name, crc) = self.link.as_ref()?;
        // The name must be no path, because the (hostile) file itself states it.
        let name = Path::new(name).file_name()?;
        let directory = self.path.parent()?;
        let installed = Path::new(DEBUG_ROOT).join(directory.strip_prefix("/").unwrap_or(directory));
        let beside = [directory.to_owned(), directory.join(".debug")];
        let places = |root: &Path| {
            let is_its_own = root == self.root;
            beside.iter().filter(move |_| is_its_own).chain([&installed])
        };
        roots.iter().find_map(|root| {
            places(root).find_map(|place| {
                let path = place.join(name);
                let file = open_inside(root, &path).ok()?;
                let same = file.try_clone().ok()?;
                let image = Image::from(Parts::of(file, &path).ok()?);
                // Computing the sum of a hole would take long.
                (image.is_dense() && sum_of(&same) == Some(*crc)).then_some((path, image))
            })
        })
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

/// The CRC-32 of IEEE 802.3 of a whole file, as .gnu_debuglink has it; `None` if the file cannot be read.
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
}
