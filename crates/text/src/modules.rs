//! The target's modules: the images of its map, each with what its file says.
//!
//! A module keeps its index for the session's life, also after it was unloaded: records and stacks still refer to
//! it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::{AddressRange, Bias, FileIdentity, FileOffset, ImageAddress, Module, ModuleKind, files};
use nanoprobe_target::{Image, Map, MappingKind, Memory, Process, ProcessId};

use crate::mapped;

/// The modules of one process, in the order in which they were found.
#[derive(Default)]
pub struct Modules {
    list: Vec<Module>,
    extents: Vec<Extent>,
    /// Images that could not be read, so that they are reported once.
    failed: HashSet<TargetAddress>,
    /// Bytes of files that are held.
    held_bytes: u64,
    /// The list is full, which is reported once.
    is_full: bool,
}

/// Where a module lies.
#[derive(Clone, Debug)]
struct Extent {
    base: TargetAddress,
    /// The start of the first mapping. It is the base, except where a part of the file is mapped again.
    start: TargetAddress,
    end: TargetAddress,
    path: PathBuf,
    /// Device and inode, as the map has them.
    file: Option<((u32, u32), u64)>,
    /// Its code's mappings.
    code: Vec<(TargetAddress, TargetAddress)>,
    /// The file is mapped as a whole elsewhere.
    is_part: bool,
    loaded: bool,
}

/// How a symbol's name is shown: as it is, or demangled.
pub type Shown = fn(&str) -> Cow<'_, str>;

/// What [`Modules::update`] found.
#[derive(Debug, Default)]
pub struct Changes {
    /// Index of the first new module.
    pub first_new: usize,
    /// Indices of modules that are no longer mapped.
    pub gone: Vec<usize>,
    /// Files that could not be read, and why.
    pub unreadable: Vec<String>,
}

/// How many images of one file are read: dlmopen has 16 namespaces.
const COPIES_MAX: usize = 32;
/// How many modules are read, unloaded ones included.
const MODULES_MAX: usize = 1 << 14;
/// Files are read until this many bytes of them are held.
const HELD_BYTES_MAX: u64 = 8 << 30;

/// The largest vDSO that is read: it has two pages on every kernel so far.
const VDSO_BYTES_MAX: u64 = 1 << 20;

/// The modules of a process, the program first. The list is empty where the process has just ended, which the
/// session reports.
pub fn modules_of(process: &Process) -> Vec<Module> {
    let mut modules = Modules::default();
    if let Ok(map) = process.map() {
        let executable = process.facts().executable.clone();
        modules.update(process.pid(), &map, process.memory(), &executable);
    }
    let mut list = modules.into_list();
    list.sort_by_key(|module| module.kind() != ModuleKind::Executable);
    list
}

/// Whether all modules are mapped that a program and its libraries need. They are not while a process is being
/// started.
pub fn is_whole(modules: &[Module]) -> bool {
    let is_there = |name: &String| modules.iter().any(|module| module.module_matches(|own| own == name));
    !modules.is_empty()
        && modules
            .iter()
            .all(|module| module.linkage().needed.iter().all(is_there))
}

impl Modules {
    /// The modules by index.
    pub fn list(&self) -> &[Module] {
        &self.list
    }

    /// The modules, in the order in which they were found.
    pub fn into_list(self) -> Vec<Module> {
        self.list
    }

    /// Whether a module is mapped now.
    pub fn is_loaded(&self, index: usize) -> bool {
        self.extents.get(index).is_some_and(|extent| extent.loaded)
    }

    /// Where a module lies, or lay.
    pub fn range(&self, index: usize) -> Option<Range<u64>> {
        self.extents.get(index).map(|extent| extent.base.0..extent.end.0)
    }

    /// Brings the list up to date with a map. `pid`: where /proc shows the process's files
    /// ([`Process::living_thread`](nanoprobe_target::Process::living_thread)).
    pub fn update(&mut self, pid: ProcessId, map: &Map, memory: &Memory, executable: &Path) -> Changes {
        let mut changes = Changes {
            first_new: self.list.len(),
            ..Changes::default()
        };
        let images = map.images();
        for (index, extent) in self.extents.iter_mut().enumerate() {
            let still = images
                .iter()
                .any(|image| image.base == extent.base && path_of(image) == extent.path);
            if extent.loaded && !still {
                changes.gone.push(index);
            }
            // A later mapping there is another module, even if it is the same file at the same place.
            extent.loaded &= still;
        }
        for image in &images {
            let path = path_of(image);
            let known = |extent: &Extent| extent.loaded && extent.base == image.base && extent.path == path;
            if self.extents.iter().any(known) || self.failed.contains(&image.base) {
                continue;
            }
            if !self.has_room_for(image) {
                self.failed.insert(image.base);
                if !std::mem::replace(&mut self.is_full, true) {
                    changes.unreadable.push(format!(
                        "{}: not read, nor what else is mapped beyond {COPIES_MAX} copies of a file, {MODULES_MAX} modules, or 8 GiB",
                        path.display()
                    ));
                }
                continue;
            }
            let is_part = is_part(image, &images);
            match self.read(pid, image, is_part, memory, executable) {
                Ok(Some(module)) => {
                    self.list.push(module);
                    self.extents.push(Extent {
                        base: image.base,
                        start: image.mappings.first().map_or(image.base, |first| first.start),
                        end: image.end(),
                        file: file_of(image),
                        code: image.executable().map(|mapping| (mapping.start, mapping.end)).collect(),
                        path,
                        is_part,
                        loaded: true,
                    });
                }
                Ok(None) => {}
                Err(reason) => {
                    self.failed.insert(image.base);
                    changes.unreadable.push(reason);
                }
            }
        }
        changes
    }

    /// Whether one more image may be read. A process can map anything any number of times.
    fn has_room_for(&self, image: &Image) -> bool {
        let file = file_of(image);
        let same = |extent: &&Extent| extent.loaded && file.is_some() && extent.file == file;
        self.list.len() < MODULES_MAX
            && self.held_bytes < HELD_BYTES_MAX
            && self.extents.iter().filter(same).count() < COPIES_MAX
    }

    /// The module whose image holds an address; a loaded one before one that is gone.
    pub fn find(&self, address: TargetAddress) -> Option<(usize, &Module)> {
        let holds = |extent: &Extent| extent.start <= address && address < extent.end;
        let index = self
            .extents
            .iter()
            .position(|extent| extent.loaded && holds(extent))
            .or_else(|| self.extents.iter().position(holds))?;
        Some((index, self.list.get(index)?))
    }

    /// `` module`function+0x12 ``, or `` module`0x1234 ``, or the bare address.
    pub fn symbolize(&self, address: TargetAddress, shown: Shown) -> String {
        let Some((_, module)) = self.find(address) else {
            return address.to_string();
        };
        let image = module.bias().to_image(address);
        named(module, image, module.resolve(image), shown)
    }

    /// As [`Modules::symbolize`], of a return address. A call that does not return may be the last instruction of
    /// its function, so that its return address lies in another function or in padding. An address that follows a
    /// call is shown as part of the calling function. The address in a signal's frame follows no call, and is shown
    /// as it is.
    pub fn symbolize_return(&self, address: TargetAddress, shown: Shown) -> String {
        let Some((_, module)) = self.find(address) else {
            return address.to_string();
        };
        let image = module.bias().to_image(address);
        let mut resolved = module.resolve(image);
        if resolved.is_none_or(|(_, offset)| offset == 0) && module.follows_call(image) {
            let of_call = module.resolve(ImageAddress(image.0.wrapping_sub(1)));
            resolved = of_call.map(|(name, offset)| (name, offset + 1)).or(resolved);
        }
        named(module, image, resolved, shown)
    }
}

impl Modules {
    /// `module:0x1234`, the place in the mapping that holds the address; or the bare address.
    pub fn place_in_mapping(&self, address: TargetAddress) -> String {
        let Some((index, module)) = self.find(address) else {
            return address.to_string();
        };
        let extent = self.extents.get(index);
        let mut code = extent.into_iter().flat_map(|extent| &extent.code);
        let mapping = code.find(|(start, end)| *start <= address && address < *end);
        let start = mapping.map_or(0, |(start, _)| start.0);
        format!("{}:{:#x}", module.name(), address.0 - start)
    }
}

fn named(module: &Module, image: ImageAddress, resolved: Option<(&str, u64)>, shown: Shown) -> String {
    match resolved.map(|(name, offset)| (shown(name), offset)) {
        Some((name, 0)) => format!("{}`{name}", module.name()),
        Some((name, offset)) => format!("{}`{name}+{offset:#x}", module.name()),
        None => format!("{}`{image}", module.name()),
    }
}

impl Modules {
    /// The first byte of the function around an address; the address itself where none is known.
    pub fn function_start(&self, address: TargetAddress) -> TargetAddress {
        let found = self.find(address).and_then(|(_, module)| {
            let (_, offset) = module.resolve(module.bias().to_image(address))?;
            address.0.checked_sub(offset)
        });
        found.map_or(address, TargetAddress)
    }

    /// The first byte of the module around an address; the address itself where none is known.
    pub fn module_start(&self, address: TargetAddress) -> TargetAddress {
        let extent = self.find(address).and_then(|(index, _)| self.extents.get(index));
        extent.map_or(address, |extent| extent.base)
    }
}

fn path_of(image: &Image) -> PathBuf {
    match image.kind() {
        Some(MappingKind::File { path, .. }) => path.clone(),
        _ => PathBuf::new(),
    }
}

fn file_of(image: &Image) -> Option<((u32, u32), u64)> {
    let first = image.mappings.first().filter(|first| first.inode != 0)?;
    Some((first.device, first.inode))
}

/// Whether a file that is mapped as a whole is mapped here again in part, as V8 does with its builtins. A linker
/// always begins with the file's first page.
fn is_part(image: &Image, images: &[Image]) -> bool {
    let is_whole = |image: &Image| image.mappings.first().is_some_and(|first| first.offset == 0);
    let file = file_of(image);
    file.is_some() && !is_whole(image) && images.iter().any(|other| is_whole(other) && file_of(other) == file)
}

impl Modules {
    /// Reads the file that an image shows; `None` for a file that is mapped executable but is no program.
    fn read(
        &mut self,
        pid: ProcessId,
        image: &Image,
        is_part: bool,
        memory: &Memory,
        executable: &Path,
    ) -> Result<Option<Module>, String> {
        let (path, deleted) = match image.kind() {
            Some(MappingKind::Vdso) => {
                let module = read_vdso(image, memory)?;
                self.held_bytes += module.image().held_bytes();
                return Ok(Some(placed(module, image, is_part)));
            }
            Some(MappingKind::File { path, deleted }) => (path, *deleted),
            _ => return Ok(None),
        };
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let file = mapped::open(pid, image, path, deleted, memory)?;
        let module = match self.known_of(&file, path) {
            Some(known) => known.clone().with_root(&root),
            None => match files::module_of(file, &root, path) {
                Ok(mut module) => {
                    self.held_bytes += module.image().held_bytes();
                    // Its symbols are read. What else is needed is little, as a rule.
                    if let Some(unread) = module.image().unread() {
                        module.set_image(unread);
                    }
                    module
                }
                Err(nanoprobe_symbols::Error::NotElf { .. } | nanoprobe_symbols::Error::NotLoadable { .. }) => {
                    return Ok(None);
                }
                Err(error) => return Err(error.to_string()),
            },
        };
        let module = if path == executable {
            module.with_kind(ModuleKind::Executable)
        } else {
            module
        };
        Ok(Some(placed(module, image, is_part)))
    }

    /// Gives back the bytes of large files. They are read again when somebody asks for them.
    pub fn forget_bytes(&mut self) {
        let mut forgotten: Vec<(nanoprobe_symbols::Image, nanoprobe_symbols::Image)> = Vec::new();
        for module in &mut self.list {
            let old = module.image();
            let known = forgotten.iter().find(|(known, _)| known.is_shared_with(old));
            let unread = match known {
                Some((_, unread)) => Some(unread.clone()),
                None => old
                    .unread()
                    .inspect(|unread| forgotten.push((old.clone(), unread.clone()))),
            };
            if let Some(unread) = unread {
                module.set_image(unread);
            }
        }
    }

    /// The module of a file that is mapped elsewhere, too: its bytes are held once.
    fn known_of(&self, file: &File, path: &Path) -> Option<&Module> {
        let identity = FileIdentity::of(&file.metadata().ok()?);
        let known = self.list.iter().zip(&self.extents);
        let mut whole = known.filter(|(_, extent)| extent.loaded && !extent.is_part && extent.path == path);
        whole.find_map(|(module, _)| Some(module).filter(|module| module.identity() == Some(identity)))
    }
}

fn read_vdso(image: &Image, memory: &Memory) -> Result<Module, String> {
    let bytes = image.end().0.saturating_sub(image.base.0).min(VDSO_BYTES_MAX);
    let mut contents = vec![0; bytes as usize];
    memory
        .read(image.base, &mut contents)
        .map_err(|error| format!("the vDSO: {error}"))?;
    Module::parse_vdso(Arc::new(contents)).map_err(|error| error.to_string())
}

/// A module where an image shows it.
fn placed(module: Module, image: &Image, is_part: bool) -> Module {
    let bias = image
        .executable()
        .next()
        .and_then(|mapping| module.bias_of_mapping(mapping.start, FileOffset(mapping.offset)))
        .unwrap_or(Bias(image.base.0));
    let module = module.with_bias(bias);
    if !is_part {
        return module;
    }
    let parts = image.executable().map(|mapping| {
        let [start, end] = [mapping.start, mapping.end].map(|address| bias.to_image(address));
        AddressRange::new(start.0, end.0)
    });
    let parts: Vec<AddressRange> = parts.collect();
    module.of_parts(&parts)
}
