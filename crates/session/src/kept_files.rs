//! What is known of files, kept for the other processes of a run: a script executes the same few programs, and all of
//! them map the same libraries.
//!
//! A module that is kept shares what was found in it with its copies: functions, call frame information, pointers to
//! code, the places of system calls. So all of that is found once for each file.
//!
//! The key comes from the opened file, which was proven to be the mapped one (`mapped`). It has the time of the last
//! change of the inode, which no owner can set. A file that has changed in the last two seconds is not kept: two
//! changes may have the same time. Other files may lie below the same paths in another mount namespace, or below
//! another root, and so may separate debug files. So both are parts of the key.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use nanoprobe_symbols::{FileIdentity, ImageBytes, Module};
use nanoprobe_target::ProcessId;
use nanoprobe_text::{Keeper, Read};

/// How many files are kept.
const FILES_MAX: usize = 256;
/// Files are kept until they have this many bytes together. What is found in a file is rarely more than the file.
const BYTES_MAX: u64 = 512 << 20;
/// A change must be older than this: the coarsest times of file systems.
const SETTLED_SECONDS: u64 = 2;

/// The files of a run.
#[derive(Debug, Default)]
pub struct KeptFiles {
    list: Mutex<Vec<Kept>>,
    /// The last vDSO, with its contents.
    vdso: Mutex<Option<(Arc<Vec<u8>>, Module)>>,
    read: AtomicU64,
    reused: AtomicU64,
}

#[derive(Debug)]
struct Kept {
    key: Key,
    module: Module,
    bytes: u64,
}

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    identity: FileIdentity,
    path: PathBuf,
    root: Place,
    mounts: Place,
}

/// Device and inode.
type Place = (u64, u64);

impl Key {
    /// The key of a file that a process has mapped; `None`: it cannot be kept.
    fn of(file: &File, path: &Path, pid: ProcessId) -> Option<Key> {
        let metadata = file.metadata().ok()?;
        let place = |name: &str| {
            let metadata = std::fs::metadata(format!("/proc/{pid}/{name}")).ok()?;
            Some((metadata.dev(), metadata.ino()))
        };
        let key = Key {
            identity: FileIdentity::of(&metadata),
            path: path.to_owned(),
            root: place("root")?,
            mounts: place("ns/mnt")?,
        };
        has_settled(&key.identity, SystemTime::now()).then_some(key)
    }
}

/// Whether a further change of a file would show a later time.
fn has_settled(file: &FileIdentity, now: SystemTime) -> bool {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let last = u64::try_from(file.changed.0.max(file.written.0)).unwrap_or(0);
    last.saturating_add(SETTLED_SECONDS) < now
}

impl KeptFiles {
    /// How many files were read, and how many more were known from another process.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.reused.load(Ordering::Relaxed))
    }

    /// The module of a file that another process has mapped before.
    fn find(&self, key: &Key) -> Option<Module> {
        let mut list = self.lock();
        let index = list.iter().position(|kept| kept.key == *key)?;
        // What was used last is at the end, and is dropped last.
        let found = list.remove(index);
        let module = found.module.clone();
        list.push(found);
        self.reused.fetch_add(1, Ordering::Relaxed);
        Some(module)
    }

    /// Notes that a file was read, and keeps its module if it has a key.
    fn keep(&self, key: Option<Key>, module: &Module) {
        self.read.fetch_add(1, Ordering::Relaxed);
        let bytes = module.image().bytes();
        let Some(key) = key.filter(|_| bytes < BYTES_MAX) else {
            return;
        };
        let mut module = module.clone();
        // Few bytes of a large file are needed again.
        if let Some(unread) = module.image().unread() {
            module.set_image(unread);
        }
        let mut list = self.lock();
        list.push(Kept { key, module, bytes });
        let mut total: u64 = list.iter().map(|kept| kept.bytes).sum();
        let mut dropped = 0;
        for kept in &*list {
            if list.len() - dropped <= FILES_MAX && total <= BYTES_MAX {
                break;
            }
            total -= kept.bytes;
            dropped += 1;
        }
        list.drain(..dropped);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper for KeptFiles {
    fn known(&self, file: &File, path: &Path, pid: ProcessId) -> Option<Module> {
        self.find(&Key::of(file, path, pid)?)
    }

    fn module(&self, file: File, path: &Path, pid: ProcessId, read: &dyn Fn(File) -> Read) -> Read {
        let key = Key::of(&file, path, pid);
        if let Some(known) = key.as_ref().and_then(|key| self.find(key)) {
            return Ok(known);
        }
        let module = read(file)?;
        self.keep(key, &module);
        Ok(module)
    }

    /// A kernel has one vDSO for all its programs, but it may have others for programs with other time (CLONE_NEWTIME).
    fn vdso(&self, contents: Vec<u8>, read: &dyn Fn(ImageBytes) -> Read) -> Read {
        let mut kept = self.vdso.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, module)) = kept.as_ref().filter(|(of, _)| **of == contents) {
            return Ok(module.clone());
        }
        let contents = Arc::new(contents);
        let module = read(contents.clone())?;
        *kept = Some((contents, module.clone()));
        Ok(module)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::time::Duration;

    use nanoprobe_symbols::files;

    use super::*;

    fn key(path: &Path) -> Key {
        let metadata = std::fs::metadata(path).unwrap();
        Key {
            identity: FileIdentity::of(&metadata),
            path: path.to_owned(),
            root: (1, 2),
            mounts: (3, 4),
        }
    }

    #[test]
    fn a_file_is_known_by_its_whole_key() {
        let program = std::env::current_exe().unwrap();
        let module = files::open(&program, &program).unwrap();
        let files = KeptFiles::default();
        let known = key(&program);
        assert!(files.find(&known).is_none());
        files.keep(Some(known.clone()), &module);
        assert!(files.find(&known).is_some());
        let (seconds, nanoseconds) = known.identity.changed;
        let changed = FileIdentity {
            changed: (seconds, nanoseconds + 1),
            ..known.identity
        };
        let others = [
            Key {
                identity: changed,
                ..known.clone()
            },
            Key {
                path: "/elsewhere".into(),
                ..known.clone()
            },
            Key {
                root: (1, 3),
                ..known.clone()
            },
            Key {
                mounts: (3, 5),
                ..known.clone()
            },
        ];
        for other in others {
            assert!(files.find(&other).is_none(), "{other:?}");
        }
        assert_eq!(files.counts(), (1, 1));
    }

    #[test]
    fn what_was_used_last_is_kept_longest() {
        let program = std::env::current_exe().unwrap();
        let module = files::open(&program, &program).unwrap();
        let files = KeptFiles::default();
        let numbered = |number: usize| Key {
            path: format!("/{number}").into(),
            ..key(&program)
        };
        for number in 0..FILES_MAX * 2 {
            files.keep(Some(numbered(number)), &module);
            let _ = files.find(&numbered(0));
        }
        let kept = files.lock();
        assert!(kept.len() <= FILES_MAX);
        assert!(kept.iter().map(|kept| kept.bytes).sum::<u64>() <= BYTES_MAX);
        assert!(kept.iter().any(|kept| kept.key == numbered(0)));
        assert!(kept.iter().all(|kept| kept.key != numbered(1)));
    }

    #[test]
    fn a_file_that_has_just_changed_is_not_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = FileIdentity::of(&file.as_file().metadata().unwrap());
        assert!(!has_settled(&metadata, SystemTime::now()));
        assert!(has_settled(&metadata, SystemTime::now() + Duration::from_secs(60)));
        assert!(!has_settled(&metadata, UNIX_EPOCH), "the clock was set back");
    }

    #[test]
    fn a_vdso_is_read_once_and_another_one_anew() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let other = [program.clone(), vec![0]].concat();
        let files = KeptFiles::default();
        let count = AtomicU64::new(0);
        let read = |contents: ImageBytes| {
            count.fetch_add(1, Ordering::Relaxed);
            Module::parse_vdso(contents)
        };
        for contents in [&program, &program, &other, &other, &program] {
            let bytes = files.vdso(contents.clone(), &read).unwrap().image().bytes();
            assert_eq!(bytes, contents.len() as u64);
        }
        assert_eq!(count.into_inner(), 3);
    }
}
