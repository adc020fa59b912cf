//! The target's modules: the images of its map, each with the contents of its file.
//!
//! A module keeps its index for the session's life, also after it was unloaded: records and stacks still refer to
//! it.

mod reading;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::{AddressRange, Bias, FileIdentity, FileOffset, ImageAddress, Module, ModuleKind};
use nanoprobe_target::{Image, Map, MappingKind, Memory, Process, ProcessId};

use crate::keeper::Keeper;

/// The modules of one process, in the order in which they were found.
#[derive(Default)]
pub struct Modules {
    list: Vec<Module>,
    extents: Vec<Extent>,
    /// Images that could not be read, so that they are reported once.
    failed: HashSet<TargetAddress>,
    /// The number of bytes of files that are held in memory.
    held_bytes: u64,
    /// Whether the list is full, which is reported once.
    is_full: bool,
    /// Whether these are the modules of this process itself.
    are_own: bool,
    /// Who knows the files that other processes map.
    keeper: Option<Arc<dyn Keeper>>,
}

/// The place of a module in memory.
#[derive(Clone, Debug)]
struct Extent {
    base: TargetAddress,
    /// The start of the first mapping. This is the module's base, unless only a part of the file is mapped a second
    /// time.
    start: TargetAddress,
    end: TargetAddress,
    path: PathBuf,
    /// Device and inode, as in the map.
    file: Option<((u32, u32), u64)>,
    /// The mappings of the module's code.
    code: Vec<(TargetAddress, TargetAddress)>,
    /// Whether the file is mapped as a whole elsewhere.
    is_part: bool,
    loaded: bool,
}

/// How a symbol's name is shown: unchanged, or demangled.
pub type Shown = fn(&str) -> Cow<'_, str>;

/// The result of [`Modules::update`].
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
/// How many modules are read, including modules that were unloaded.
const MODULES_MAX: usize = 1 << 14;
/// Files are read until this many bytes of them are held.
const HELD_BYTES_MAX: u64 = 8 << 30;

/// How many images are read at once, before the room for more is looked at again.
const BATCH: usize = 16;

/// The modules of a process, the program first. The list is empty if the process has just ended, which the session
/// reports.
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

/// Whether all modules that a program and its libraries need are mapped. This is false while a process is being
/// started.
pub fn is_whole(modules: &[Module]) -> bool {
    let is_there = |name: &String| modules.iter().any(|module| module.module_matches(|own| own == name));
    !modules.is_empty()
        && modules
            .iter()
            .all(|module| module.linkage().needed.iter().all(is_there))
}

/// Which modules the program keeps for as long as it runs: the program itself, the dynamic linker, and the libraries
/// that these need, directly or through others. Two libraries of one name are not among them: dlmopen may have loaded
/// one of the two, and dlclose may unload it.
pub fn permanent(modules: &[Module]) -> HashSet<usize> {
    let mut named: HashMap<String, Option<usize>> = HashMap::new();
    for (index, module) in modules.iter().enumerate() {
        for name in module.names() {
            let same = |known: &mut Option<usize>| *known = known.filter(|other| *other == index);
            named.entry(name).and_modify(same).or_insert(Some(index));
        }
    }
    let is_first = |module: &Module| module.kind() != ModuleKind::Library;
    let mut ahead: Vec<usize> = (0..modules.len())
        .filter(|index| modules.get(*index).is_some_and(is_first))
        .collect();
    let mut permanent: HashSet<usize> = ahead.iter().copied().collect();
    while let Some(module) = ahead.pop().and_then(|index| modules.get(index)) {
        let needed = module.linkage().needed.iter();
        let needed = needed.filter_map(|name| named.get(name).copied().flatten());
        ahead.extend(needed.filter(|index| permanent.insert(*index)));
    }
    permanent
}

impl Modules {
    /// This process's own modules. Their separate debug files are not held open: a program may close all descriptors
    /// that it does not know.
    pub fn of_self() -> Modules {
        Modules {
            are_own: true,
            ..Modules::default()
        }
    }

    /// No modules yet. Files that the keeper knows are not read.
    pub fn kept_by(keeper: Arc<dyn Keeper>) -> Modules {
        Modules {
            keeper: Some(keeper),
            ..Modules::default()
        }
    }

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

    /// Whether a map shows a module where it was found, with the same file and the same code.
    pub fn is_in(&self, index: usize, map: &Map) -> bool {
        let Some(extent) = self.extents.get(index) else {
            return false;
        };
        map.images()
            .iter()
            .any(|image| image.base == extent.base && file_of(image) == extent.file && code_of(image) == extent.code)
    }

    /// The place of a module, also after it is unloaded.
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
            // If the module is gone, a later mapping at this place is another module, even if it shows the same file.
            extent.loaded &= still;
        }
        let is_new = |image: &&Image| {
            let path = path_of(image);
            let is_it = |extent: &Extent| extent.loaded && extent.base == image.base && extent.path == path;
            !self.extents.iter().any(is_it) && !self.failed.contains(&image.base)
        };
        let new: Vec<&Image> = images.iter().filter(is_new).collect();
        // A single image is read without another thread: the library starts none in its program.
        let images_at_once = if self.are_own { 1 } else { BATCH };
        for batch in new.chunks(images_at_once) {
            let has_room = |image: &&Image| self.has_room_for(image);
            let opened = batch
                .iter()
                .map(|image| Some(self.opened(pid, image, memory)).filter(|_| has_room(image)));
            let read = self.read(pid, opened.collect());
            for (image, read) in batch.iter().zip(read) {
                let is_part = is_part(image, &images);
                match read.filter(|_| self.has_room_for(image)) {
                    Some(Ok(Some(module))) => self.add(module, image, is_part, executable),
                    Some(Ok(None)) => {}
                    Some(Err(reason)) => {
                        self.failed.insert(image.base);
                        changes.unreadable.push(reason);
                    }
                    None => {
                        self.failed.insert(image.base);
                        if !std::mem::replace(&mut self.is_full, true) {
                            changes.unreadable.push(format!(
                                "{}: not read, nor are other files: the process maps more than {COPIES_MAX} copies \
                                 of a file, {MODULES_MAX} modules, or 8 GiB",
                                path_of(image).display()
                            ));
                        }
                    }
                }
            }
        }
        changes
    }

    /// Adds a module that was read. Another thread may have read the same file for another image.
    fn add(&mut self, mut module: Module, image: &Image, is_part: bool, executable: &Path) {
        let path = path_of(image);
        match module.identity().and_then(|identity| self.known_of(identity, &path)) {
            Some(known) => module = known.clone().with_root(module.root()),
            None => {
                self.held_bytes += module.image().held_bytes();
                // Usually few of these bytes are needed again.
                if let Some(unread) = module.image().unread() {
                    module.set_image(unread);
                }
            }
        }
        if path == executable {
            module = module.with_kind(ModuleKind::Executable);
        }
        self.list.push(placed(module, image, is_part));
        self.extents.push(Extent {
            base: image.base,
            start: image.mappings.first().map_or(image.base, |first| first.start),
            end: image.end(),
            file: file_of(image),
            code: code_of(image),
            path,
            is_part,
            loaded: true,
        });
    }

    /// Whether one more image may be read. A process can map anything any number of times.
    fn has_room_for(&self, image: &Image) -> bool {
        let file = file_of(image);
        let same = |extent: &&Extent| extent.loaded && file.is_some() && extent.file == file;
        self.list.len() < MODULES_MAX
            && self.held_bytes < HELD_BYTES_MAX
            && self.extents.iter().filter(same).count() < COPIES_MAX
    }

    /// The module whose image holds an address; loaded modules have precedence over modules that are gone.
    pub fn find(&self, address: TargetAddress) -> Option<(usize, &Module)> {
        let holds = |extent: &Extent| extent.start <= address && address < extent.end;
        let index = self
            .extents
            .iter()
            .position(|extent| extent.loaded && holds(extent))
            .or_else(|| self.extents.iter().position(holds))?;
        Some((index, self.list.get(index)?))
    }

    /// `` module`function+0x12 ``, or the same form with a variable, or `` module`0x1234 ``, or the bare address.
    pub fn symbolize(&self, address: TargetAddress, shown: Shown) -> String {
        let Some((_, module)) = self.find(address) else {
            return address.to_string();
        };
        let image = module.bias().to_image(address);
        named(module, image, resolved(module, image), shown)
    }

    /// As [`Modules::symbolize`], for a return address. A call that does not return may be the last instruction of
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

/// The function or the variable that holds an address, and the address's distance from its start.
fn resolved(module: &Module, image: ImageAddress) -> Option<(&str, u64)> {
    module.resolve(image).or_else(|| module.object_at(image))
}

fn named(module: &Module, image: ImageAddress, resolved: Option<(&str, u64)>, shown: Shown) -> String {
    match resolved.map(|(name, offset)| (shown(name), offset)) {
        Some((name, 0)) => format!("{}`{name}", module.name()),
        Some((name, offset)) => format!("{}`{name}+{offset:#x}", module.name()),
        None => format!("{}`{image}", module.name()),
    }
}

impl Modules {
    /// The first byte of the function or variable around an address; the address itself if neither is known.
    pub fn function_start(&self, address: TargetAddress) -> TargetAddress {
        let found = self.find(address).and_then(|(_, module)| {
            let (_, offset) = resolved(module, module.bias().to_image(address))?;
            address.0.checked_sub(offset)
        });
        found.map_or(address, TargetAddress)
    }

    /// The first byte of the module around an address; the address itself if no module is known.
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

/// Whether an image is a second mapping of a part of a file that is already mapped as a whole. V8 makes such mappings
/// of its builtins. A linker always begins with the file's first page.
fn is_part(image: &Image, images: &[Image]) -> bool {
    let is_whole = |image: &Image| image.mappings.first().is_some_and(|first| first.offset == 0);
    let file = file_of(image);
    file.is_some() && !is_whole(image) && images.iter().any(|other| is_whole(other) && file_of(other) == file)
}

impl Modules {
    /// Releases the bytes of large files. They are read again on demand.
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
    fn known_of(&self, identity: FileIdentity, path: &Path) -> Option<&Module> {
        let known = self.list.iter().zip(&self.extents);
        let mut whole = known.filter(|(_, extent)| extent.loaded && !extent.is_part && extent.path == path);
        whole.find_map(|(module, _)| Some(module).filter(|module| module.identity() == Some(identity)))
    }
}

/// Where an image's code is mapped. Neighbouring mappings are one: a tracer may have set pages apart.
fn code_of(image: &Image) -> Vec<(TargetAddress, TargetAddress)> {
    let mut code: Vec<(TargetAddress, TargetAddress)> = Vec::new();
    for mapping in image.executable() {
        match code.last_mut() {
            Some((_, end)) if *end == mapping.start => *end = mapping.end,
            _ => code.push((mapping.start, mapping.end)),
        }
    }
    code
}

/// A module at the place where an image shows it.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use nanoprobe_symbols::files;

    use super::*;

    /// The module of a mapped file of this process, or of a file.
    fn module(path: &Path) -> Module {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        Module::parse(Arc::new(files::read(path).unwrap()), &name).unwrap()
    }

    #[test]
    fn only_what_a_program_needs_is_permanent() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mapped = |part: &str| {
            let path = maps.split_whitespace().find(|word| word.contains(part));
            PathBuf::from(path.unwrap_or_else(|| panic!("{part} is not mapped")))
        };
        let (program, libc, linker) = (
            std::env::current_exe().unwrap(),
            mapped("/libc.so"),
            mapped("/ld-linux"),
        );
        // This library needs libc, and no library needs it.
        let library = libc.with_file_name("libresolv.so.2");
        let list: Vec<Module> = [&program, &library, &libc, &linker].map(|path| module(path)).into();
        assert_eq!(permanent(&list), HashSet::from([0, 2, 3]));
        // dlmopen loads a second libc, which can be unloaded. The name alone does not show which of the two that is.
        let list: Vec<Module> = [&program, &libc, &libc, &linker].map(|path| module(path)).into();
        assert_eq!(permanent(&list), HashSet::from([0, 3]));
    }

    #[test]
    fn code_that_was_set_apart_is_as_it_was() {
        let code = |text: &[u8]| Map::parse(text).images().iter().map(code_of).collect::<Vec<_>>();
        let whole = code(
            b"1000-2000 r--p 00000000 fe:00 12 /usr/lib/a.so\n\
              2000-9000 r-xp 00001000 fe:00 12 /usr/lib/a.so\n",
        );
        let apart = code(
            b"1000-2000 r--p 00000000 fe:00 12 /usr/lib/a.so\n\
              2000-4000 r-xp 00001000 fe:00 12 /usr/lib/a.so\n\
              4000-5000 r-xp 00003000 fe:00 12 /usr/lib/a.so\n\
              5000-9000 r-xp 00004000 fe:00 12 /usr/lib/a.so\n",
        );
        assert_eq!(whole, [[(TargetAddress(0x2000), TargetAddress(0x9000))]]);
        assert_eq!(apart, whole);
        let two = code(
            b"2000-4000 r-xp 00001000 fe:00 12 /usr/lib/a.so\n\
              5000-9000 r-xp 00004000 fe:00 12 /usr/lib/a.so\n",
        );
        assert_ne!(two, whole);
    }
}
