//! Which files the dynamic linker would load for a program, found without running it.
//!
//! ```text
//!   DT_NEEDED name, for each file in the order in which they are met
//!     with a slash      the path itself
//!     else, in          DT_RPATH of the file and of the program, LD_LIBRARY_PATH, DT_RUNPATH of the file,
//!                       /etc/ld.so.cache, the default folders
//! ```
//!
//! This is a forecast, to find the names of types before the process exists; addresses come from the process later.
//! It ignores other roots, hooks of the loader, and dlopen. Manual: ld.so(8).

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::files;
use crate::linkage::Linkage;
use crate::module::Module;
use crate::module_kind::ModuleKind;
use crate::module_name;

/// The most libraries of a program.
const LIBRARIES_MAX: usize = 1024;
const CACHE: &str = "/etc/ld.so.cache";
/// A larger cache is not read.
const CACHE_BYTES_MAX: usize = 64 << 20;
/// The start of a cache in the present format; a cache in the older format may precede it.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;
/// The flags in glibc's cache of an ELF library for x86-64.
const FLAGS_X86_64: u32 = 0x0303;
/// The folders of glibc, folders that distributions add, and the folders of musl.
const FOLDERS: [&str; 7] = [
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/local/lib",
];

/// A library that a program will map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// The path of the library's file, without symbolic links.
    pub path: PathBuf,
    /// The library's names in probe descriptions.
    pub names: Vec<String>,
}

/// The libraries of a program, nearest first, without the linker itself. `library_path` is LD_LIBRARY_PATH.
#[must_use]
pub fn libraries(program: &Module, library_path: Option<&OsStr>) -> Vec<Needed> {
    let cache = files::read(Path::new(CACHE))
        .ok()
        .filter(|bytes| bytes.len() <= CACHE_BYTES_MAX);
    let cache = cache.map(|bytes| read_cache(&bytes)).unwrap_or_default();
    let environment: Vec<PathBuf> = library_path
        .map(|path| std::env::split_paths(path).collect())
        .unwrap_or_default();
    let early = folders(program.linkage().early_run_path.as_deref(), program.path());
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let mut asked: HashSet<String> = HashSet::new();
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([(program.path().to_owned(), program.linkage().clone())]);
    while let Some((path, linkage)) = waiting.pop_front() {
        let own_early = folders(linkage.early_run_path.as_deref(), &path);
        let late = folders(linkage.run_path.as_deref(), &path);
        for name in &linkage.needed {
            if found.len() >= LIBRARIES_MAX || !asked.insert(name.clone()) {
                continue;
            }
            let places = own_early.iter().chain(&early).chain(&environment).chain(&late);
            let searched = places.map(|folder| folder.join(name)).chain(cache.get(name).cloned());
            let default = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
            let candidates: Vec<PathBuf> = match name.contains('/') {
                true => vec![PathBuf::from(name)],
                false => searched.chain(default).collect(),
            };
            let Some((file, own)) = candidates.iter().find_map(|path| header_of(path)) else {
                continue;
            };
            if !seen.insert(file.clone()) || own.interpreter.is_some() && own.needed.is_empty() {
                continue;
            }
            let base = file
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            found.push(Needed {
                names: module_name::names(&base, own.soname.as_deref(), ModuleKind::Library),
                path: file.clone(),
            });
            waiting.push_back((file, own));
        }
    }
    found
}

/// A file's path without links, and its linkage; `None` if the linker would skip it.
fn header_of(path: &Path) -> Option<(PathBuf, Linkage)> {
    let path = path.canonicalize().ok()?;
    let linkage = files::linkage_of(&path)?;
    Some((path, linkage))
}

/// The folders of a file's DT_RUNPATH.
fn folders(run_path: Option<&str>, file: &Path) -> Vec<PathBuf> {
    let origin = file
        .parent()
        .map_or_else(String::new, |folder| folder.to_string_lossy().into_owned());
    let expand = |folder: &str| {
        let folder = folder.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin);
        let folder = folder.replace("$LIB", "lib64").replace("$PLATFORM", "x86_64");
        PathBuf::from(folder)
    };
    let parts = run_path.unwrap_or_default().split(':').filter(|part| !part.is_empty());
    parts.map(expand).collect()
}

/// The cache's libraries for this machine, by name. If a name occurs several times, the first entry counts, which is
/// the best. Entries for special processors come after the general entry.
fn read_cache(bytes: &[u8]) -> HashMap<String, PathBuf> {
    let read = || {
        let start = bytes.windows(MAGIC.len()).position(|window| window == MAGIC)?;
        let cache = bytes.get(start..)?;
        let word = |at: usize| Some(u32::from_le_bytes(cache.get(at..at.checked_add(4)?)?.try_into().ok()?));
        let text = |at: u32| {
            let rest = cache.get(usize::try_from(at).ok()?..)?;
            let end = rest.iter().position(|byte| *byte == 0)?;
            Some(String::from_utf8_lossy(rest.get(..end)?).into_owned())
        };
        let count = usize::try_from(word(MAGIC.len())?).ok()?;
        let mut found: HashMap<String, PathBuf> = HashMap::new();
        let room = cache.len().saturating_sub(HEADER_BYTES) / ENTRY_BYTES;
        for index in 0..count.min(room) {
            let at = HEADER_BYTES + index * ENTRY_BYTES;
            let is_special = word(at + 16)? != 0 || word(at + 20)? != 0;
            if word(at)? != FLAGS_X86_64 || is_special {
                continue;
            }
            if let (Some(name), Some(path)) = (text(word(at + 4)?), text(word(at + 8)?)) {
                found.entry(name).or_insert_with(|| PathBuf::from(path));
            }
        }
        Some(found)
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(u32, u64, &str, &str)]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[MAGIC.len()..MAGIC.len() + 4].copy_from_slice(&(entries.len() as u32).to_le_bytes());
        let mut strings = Vec::new();
        let start = HEADER_BYTES + entries.len() * ENTRY_BYTES;
        for (flags, hwcap, name, path) in entries {
            bytes.extend(flags.to_le_bytes());
            for text in [name, path] {
                bytes.extend(((start + strings.len()) as u32).to_le_bytes());
                strings.extend(text.bytes().chain([0]));
            }
            bytes.extend([0; 4]);
            bytes.extend(hwcap.to_le_bytes());
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn the_cache_names_the_libraries_of_this_machine() {
        let bytes = cache(&[
            (FLAGS_X86_64, 1 << 62, "libz.so.1", "/lib/glibc-hwcaps/libz.so.1"),
            (FLAGS_X86_64, 0, "libz.so.1", "/lib/libz.so.1"),
            (0x0803, 0, "libz.so.1", "/lib32/libz.so.1"),
            (0x0803, 0, "libx.so.1", "/lib32/libx.so.1"),
        ]);
        let found = read_cache(&bytes);
        assert_eq!(found.len(), 1);
        assert_eq!(found["libz.so.1"], Path::new("/lib/libz.so.1"));
        // An older cache may precede this one, and the file may be cut off anywhere.
        assert_eq!(read_cache(&[b"ld.so-1.7.0\0".as_slice(), &bytes].concat()), found);
        for end in 0..bytes.len() {
            assert!(read_cache(&bytes[..end]).len() <= 1);
        }
    }

    #[test]
    fn origin_is_the_file_s_folder() {
        let file = Path::new("/opt/app/bin/program");
        let found = folders(Some("$ORIGIN/../lib:${ORIGIN}::/opt/lib"), file);
        assert_eq!(
            found,
            [
                Path::new("/opt/app/bin/../lib"),
                Path::new("/opt/app/bin"),
                Path::new("/opt/lib")
            ]
        );
        assert!(folders(None, file).is_empty());
    }

    #[test]
    fn a_program_s_libraries_are_those_that_it_maps() {
        let path = std::env::current_exe().unwrap();
        let program = files::open(&path, &path).unwrap();
        let found = libraries(&program, std::env::var_os("LD_LIBRARY_PATH").as_deref());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!found.is_empty());
        for library in &found {
            assert!(maps.contains(&*library.path.to_string_lossy()), "{library:?}");
        }
        let libc = found
            .iter()
            .filter(|library| library.names.iter().any(|name| name == "libc"));
        assert_eq!(libc.count(), 1, "{found:?}");
    }
}
