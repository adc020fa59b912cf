//! Reading the files that images show. What is known already is not read; several files are read at the same time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nanoprobe_symbols::{FileIdentity, Module, files};
use nanoprobe_target::{Image, MappingKind, Memory, ProcessId};

use super::Modules;
use crate::ahead::shared_out;
use crate::keeper::Read;
use crate::mapped;

/// A larger vDSO is not read. On every kernel so far it has two pages.
const VDSO_BYTES_MAX: u64 = 1 << 20;

/// The module of an image; `None`: it is no program. Else why it could not be read.
pub(super) type ReadImage = Result<Option<Module>, String>;

/// An image before its file is read.
pub(super) enum Opened<'i> {
    Read(Box<ReadImage>),
    /// The file, and its path in the map.
    Unread(File, &'i Path),
}

impl Modules {
    /// The file that an image shows, or its module if that is known.
    pub(super) fn opened<'i>(&self, pid: ProcessId, image: &'i Image, memory: &Memory) -> Opened<'i> {
        let (path, deleted) = match image.kind() {
            Some(MappingKind::Vdso) => return Opened::Read(Box::new(self.read_vdso(image, memory).map(Some))),
            Some(MappingKind::File { path, deleted }) => (path, *deleted),
            _ => return Opened::Read(Box::new(Ok(None))),
        };
        let file = match mapped::open(pid, image, path, deleted, memory) {
            Ok(file) => file,
            Err(reason) => return Opened::Read(Box::new(Err(reason))),
        };
        let identity = file.metadata().ok().map(|metadata| FileIdentity::of(&metadata));
        let known = identity.and_then(|identity| self.known_of(identity, path)).cloned();
        let kept = || self.keeper.as_ref()?.known(&file, path, pid);
        match known.or_else(kept) {
            Some(known) => Opened::Read(Box::new(Ok(Some(known.with_root(&root_of(pid)))))),
            None => Opened::Unread(file, path),
        }
    }

    /// The module of each image; `None` for a file that is no program, although it is mapped executable.
    pub(super) fn read(&self, pid: ProcessId, opened: Vec<Option<Opened<'_>>>) -> Vec<Option<ReadImage>> {
        let root = root_of(pid);
        let read = |file: &File, path: &Path| {
            let file = file
                .try_clone()
                .map_err(|error| format!("{}: {error}", path.display()))?;
            let read = |file| self.module_of(file, &root, path);
            let module = match &self.keeper {
                Some(keeper) => keeper.module(file, path, pid, &read),
                None => read(file),
            };
            match module {
                Ok(module) => Ok(Some(module.with_root(&root))),
                Err(nanoprobe_symbols::Error::NotElf { .. } | nanoprobe_symbols::Error::NotLoadable { .. }) => Ok(None),
                Err(error) => Err(error.to_string()),
            }
        };
        let unread = opened.iter().flatten().filter_map(|opened| match opened {
            Opened::Unread(file, path) => Some((file, *path)),
            Opened::Read(_) => None,
        });
        let unread: Vec<(&File, &Path)> = unread.collect();
        let mut modules = shared_out(&unread, |(file, path)| read(file, path)).into_iter();
        let image = |opened: Option<Opened<'_>>| match opened? {
            Opened::Read(read) => Some(*read),
            Opened::Unread(..) => modules.next(),
        };
        opened.into_iter().map(image).collect()
    }

    fn read_vdso(&self, image: &Image, memory: &Memory) -> Result<Module, String> {
        let bytes = image.end().0.saturating_sub(image.base.0).min(VDSO_BYTES_MAX);
        let mut contents = vec![0; bytes as usize];
        memory
            .read(image.base, &mut contents)
            .map_err(|error| format!("the vDSO: {error}"))?;
        let module = match &self.keeper {
            Some(keeper) => keeper.vdso(contents, &|contents| Module::parse_vdso(contents)),
            None => Module::parse_vdso(Arc::new(contents)),
        };
        module.map_err(|error| error.to_string())
    }

    fn module_of(&self, file: File, root: &Path, path: &Path) -> Read {
        if self.are_own {
            return files::module_of_self(file, Path::new("/proc/self/root"), path);
        }
        files::module_of(file, root, path)
    }
}

/// Where /proc shows the files of a process.
fn root_of(pid: ProcessId) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}
